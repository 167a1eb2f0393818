/* io/inflate.h - decompression of deflate streams (RFC 1951), and the CRC-32 of zip archives. */
#ifndef TCI_IO_INFLATE_H
#define TCI_IO_INFLATE_H

#include "../base/platform.h"

typedef enum tci_inflate_end {
    TCI_INFLATE_WHOLE, /* the stream has ended */
    TCI_INFLATE_FULL,  /* it has more bytes than there is room for */
    TCI_INFLATE_SHORT, /* the input ended first */
    TCI_INFLATE_BAD    /* the stream is damaged */
} tci_inflate_end;
/* Reads at most n_from bytes and writes at most n_to; *made: how many it wrote. Needs no memory of
 * its own but 5 kB of stack. */
TCI_FN tci_inflate_end tci_inflate(const void *from, int64_t n_from, void *to, int64_t n_to,
                                   int64_t *made);
/* CRC of bytes that continue those of `crc`; 0: the first ones. */
TCI_FN uint32_t tci_inflate_crc(uint32_t crc, const void *bytes, int64_t n);

#endif
