/* examples/exported.h - a file of C that tc_export_c wrote, as a library in this process. Its user
 * defines _GNU_SOURCE before the first #include. */
#ifndef EXPORTED_H
#define EXPORTED_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program with one input and one output. */
typedef struct exported {
    void *handle; /* for dlclose */
    int (*run)(const void *input, void *output, void *workspace);
    void (*prepare)(void *workspace);
} exported;

/* Compiles folder/name.c, whose functions are name and name_prepare, and loads them. */
static inline exported exported_load(const char *folder, const char *name, const char *flags)
{
    char command[1024], object[512], prepare[128];
    exported e = {0};
    snprintf(object, sizeof(object), "%.400s/%.100s.so", folder, name);
    snprintf(command, sizeof(command),
             "cc -std=c99 -O2 %.80s -Wall -Werror -shared -fPIC '%.250s/%.100s.c' -o '%.400s'",
             flags, folder, name, object);
    snprintf(prepare, sizeof(prepare), "%.100s_prepare", name);
    e.handle = system(command) == 0 ? dlopen(object, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (e.handle) {
        *(void **)&e.run = dlsym(e.handle, name);
        *(void **)&e.prepare = dlsym(e.handle, prepare);
    }
    remove(object);
    if (!e.run || !e.prepare) {
        fprintf(stderr, "%s/%s.c does not compile, or not load\n", folder, name);
        exit(1);
    }
    return e;
}

#endif
