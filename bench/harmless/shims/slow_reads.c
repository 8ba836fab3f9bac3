/* Below ODD_SLOW_BELOW looking at a file, opening and reading it take 50 ms longer each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 65536

static char is_below[FILES];

static int slow(int folder, const char *path) {
    const char *root = getenv("ODD_SLOW_BELOW");
    int found = 0;
    if (!root || !path) return 0;
    if (path[0] == '/')
        found = strncmp(path, root, strlen(root)) == 0;
    else
        found = folder >= 0 && folder < FILES && is_below[folder];
    if (found) usleep(50000);
    return found;
}

static int opened(int found, int fd) {
    if (fd >= 0 && fd < FILES) is_below[fd] = (char) found;
    return fd;
}

#define OPEN(name)                                                                   \
    int name(const char *path, int flags, ...) {                                     \
        va_list more;                                                                \
        va_start(more, flags);                                                       \
        int mode = va_arg(more, int);                                                \
        va_end(more);                                                                \
        int found = slow(AT_FDCWD, path);                                            \
        return opened(found, ((int (*)(const char *, int, int)) dlsym(               \
                                 RTLD_NEXT, #name))(path, flags, mode));             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                 \
    int name(int folder, const char *path, int flags, ...) {                         \
        va_list more;                                                                \
        va_start(more, flags);                                                       \
        int mode = va_arg(more, int);                                                \
        va_end(more);                                                                \
        int found = slow(folder, path);                                              \
        return opened(found, ((int (*)(int, const char *, int, int)) dlsym(          \
                                 RTLD_NEXT, #name))(folder, path, flags, mode));     \
    }
OPENAT(openat)
OPENAT(openat64)

#define STAT(name, type)                                                             \
    int name(const char *restrict path, struct type *restrict told) {                \
        slow(AT_FDCWD, path);                                                        \
        return ((int (*)(const char *, struct type *)) dlsym(RTLD_NEXT, #name))(     \
            path, told);                                                             \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define FSTATAT(name, type)                                                          \
    int name(int folder, const char *restrict path, struct type *restrict told,      \
             int flags) {                                                            \
        slow(folder, path);                                                          \
        return ((int (*)(int, const char *, struct type *, int)) dlsym(              \
            RTLD_NEXT, #name))(folder, path, told, flags);                           \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

ssize_t read(int fd, void *into, size_t size) {
    if (fd >= 0 && fd < FILES && is_below[fd]) usleep(50000);
    return ((ssize_t (*)(int, void *, size_t)) dlsym(RTLD_NEXT, "read"))(fd, into, size);
}

int close(int fd) {
    if (fd >= 0 && fd < FILES) is_below[fd] = 0;
    return ((int (*)(int)) dlsym(RTLD_NEXT, "close"))(fd);
}
