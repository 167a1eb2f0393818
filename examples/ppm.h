/* examples/ppm.h - 8-bit colour images as P6 files. */
#ifndef PPM_H
#define PPM_H

#include <stdio.h>
#include <stdlib.h>

/* The pixels, three bytes each, row by row; leaves the program when there are none. */
static inline unsigned char *ppm_read(const char *path, int *width, int *height)
{
    FILE *file = fopen(path, "rb");
    int max;
    if (!file || fscanf(file, "P6 %d %d %d", width, height, &max) != 3 || max != 255 ||
        fgetc(file) == EOF || *width < 1 || *height < 1 || *width > 1 << 14 || *height > 1 << 14) {
        fprintf(stderr, "%s: not an 8-bit P6 image\n", path);
        exit(1);
    }
    size_t n = (size_t)*width * (size_t)*height * 3;
    unsigned char *pixels = malloc(n);
    if (!pixels || fread(pixels, 1, n, file) != n) {
        fprintf(stderr, "%s: too short\n", path);
        exit(1);
    }
    fclose(file);
    return pixels;
}

/* Writes the file "<prefix><name>.ppm". */
static inline void ppm_write(const char *prefix, const char *name, const unsigned char *pixels,
                             int width, int height)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s.ppm", prefix, name);
    FILE *file = fopen(path, "wb");
    size_t n = (size_t)width * (size_t)height;
    bool good = file && fprintf(file, "P6\n%d %d\n255\n", width, height) > 0 &&
                fwrite(pixels, 3, n, file) == n;
    good = file && fclose(file) == 0 && good;
    if (!good) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
}

#endif
