/* debug/source_location.h - declares source locations of kernels: the user's file and line, tc_
 * call and region of each step of a program. */
#ifndef TCI_DEBUG_SOURCE_LOCATION_H
#define TCI_DEBUG_SOURCE_LOCATION_H

#include "../run/runtime_structs.h"

/* Of one canonical node of a program. */
struct tci_origin {
    uint32_t file, region; /* debug/string_intern.h; region with TCI_REGION_BACKWARD */
    int32_t line;
    const char *call; /* "tc_cos"; NULL: unknown */
};

/* Fills one for each input and node of the request. */
TCI_FN void tci_origin_list(const tci_request *r, tci_origin *list);
/* Of step i of f: the most specific origin and region; NULL: unknown. */
TCI_FN const tci_origin *tci_origin_of(const tc_program *f, int step);
/* Of the value that a buffer of f's code holds; NULL: unknown. */
TCI_FN const tci_origin *tci_origin_of_buffer(const tc_program *f, int buffer);
TCI_FN uint32_t tci_origin_region(const tc_program *f, int step); /* as tci_origin.region */
/* "app.c:31 tc_cos"; "" where nothing is known. */
TCI_FN void tci_origin_line(tci_str *out, const tci_origin *o);
/* "layer1.0" or "backward of layer1.0"; "" outside of regions. */
TCI_FN void tci_origin_region_text(tci_str *out, uint32_t region);
/* Both of step i of f, ", " between. */
TCI_FN void tci_origin_text(tci_str *out, const tc_program *f, int step);
/* A C comment with a line for each of the n nodes of the request: op, shape, line and region. */
TCI_FN void tci_origin_comment(tci_str *out, const tci_request *r, const int32_t *numbers, int n);
/* The file name without its folders. */
TCI_FN const char *tci_origin_base(const char *path);
/* The name of the program, or the first eight digits of its key. */
TCI_FN const char *tci_program_name(const tc_program *f, char hex[33]);

#endif
