/* cuda/nvrtc.h - declares the compilation of CUDA source to cubin files with NVRTC. */
#ifndef TCI_CUDA_NVRTC_H
#define TCI_CUDA_NVRTC_H

#include "../api/backend.h"

/* architecture: the option, "--gpu-architecture=sm_90a". On failure *why is a borrowed text. */
TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why);

#endif
