/* api/cache_export.c - tc_cache_export: copies the disk cache to a directory that other machines
 * can use.
 *
 * In: a context. Out: a directory. */
#include "../compile/disk_cache.h"
#include "api_call.h"

TC_API tc_status tc_cache_export_at(tc_ctx *ctx, const char *dir, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_cache_export", here);
    tci_disk from = {.dir = {.fd = -1}};
    tci_dir to = {.fd = -1};
    tci_str why = {0};
    if (!f.failed && !dir) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the directory is NULL");
    }
    if (!f.failed) {
        tci_disk_open(&from, &f.ctx->options);
        if (!from.readable) {
            tci_frame_fail(&f, TC_ERR_IO, "there is no disk cache (TC_LOG=cache says why)");
        }
    }
    if (!f.failed && (!tci_dir_open(&to, dir, TCI_DIR_CODE, &why) || !to.writable)) {
        tci_frame_fail(&f, TC_ERR_IO, "a cache cannot be in '%.200s': %.200s", dir,
                       why.n ? tci_str_text(&why) : "it cannot be written");
    }
    if (!f.failed && tci_disk_export(&from, &to, &why)) {
        tci_frame_fail(&f, TC_ERR_IO, "%.300s", tci_str_text(&why));
    }
    tci_str_free(&why);
    tci_dir_close(&to);
    tci_disk_close(&from);
    return tci_frame_status(&f);
}
