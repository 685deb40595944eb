/*
 * driver.c - a main for a fuzzer where there is no libFuzzer: runs each file that it is given,
 * once.
 *
 * Arguments are files and folders (their files, not deeper), as with libFuzzer; arguments that
 * begin with a dash are ignored. Each input is copied into a block of exactly its size, so that a
 * read past its end is seen by whoever watches the heap. A corpus without a single input is an
 * error: it tests nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

#define INPUT_MAX 67108864 /* bytes */
#define PATH_SIZE 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int complain(const char *path, const char *what)
{
    (void)fprintf(stderr, "driver: %s: %s\n", path, what);
    return -1;
}

/* Run one input of `size` bytes from `file`: 0, or -1 after a message. */
static int run_stream(const char *path, FILE *file, size_t size)
{
    uint8_t *bytes = kvarve_allocate(size > 0 ? size : 1);
    int result = 0;

    if (bytes == NULL) {
        return complain(path, "no memory");
    }
    if (fread(bytes, 1, size, file) == size) {
        (void)LLVMFuzzerTestOneInput(bytes, size);
    } else {
        result = complain(path, "cannot be read");
    }
    kvarve_release(bytes);
    return result;
}

static int run_file(const char *path)
{
    struct stat status;
    FILE *file;
    int result;

    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > INPUT_MAX) {
        return complain(path, "no regular file of at most 64 MiB");
    }
    file = fopen(path, "rbe");
    if (file == NULL) {
        return complain(path, "cannot be opened");
    }
    result = run_stream(path, file, (size_t)status.st_size);
    (void)fclose(file);
    return result;
}

/* Run every file of a folder; how many there were, or -1. */
static long run_folder(const char *folder, DIR *directory)
{
    char path[PATH_SIZE];
    const struct dirent *entry;
    long count = 0;

    while ((entry = readdir(directory)) != NULL) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);

        if (entry->d_name[0] == '.') {
            continue;
        }
        if (length < 0 || (size_t)length >= sizeof path || run_file(path) != 0) {
            return -1;
        }
        count++;
    }
    return count;
}

static long run_argument(const char *path)
{
    DIR *directory = opendir(path);
    long count;

    if (directory == NULL) {
        return errno == ENOTDIR && run_file(path) == 0 ? 1 : complain(path, "cannot be run");
    }
    count = run_folder(path, directory);
    (void)closedir(directory);
    return count;
}

int main(int count, char **arguments)
{
    long inputs = 0;
    int i;

    for (i = 1; i < count; i++) {
        const long ran = arguments[i][0] == '-' ? 0 : run_argument(arguments[i]);

        if (ran < 0) {
            return 1;
        }
        inputs += ran;
    }
    (void)printf("driver: %ld inputs\n", inputs);
    return inputs > 0 ? 0 : 1;
}
