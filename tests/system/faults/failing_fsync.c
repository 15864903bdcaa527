/* Preloaded into a broker: every fdatasync fails with EIO while the file named by MQ_FAIL_FSYNC is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int descriptor)
{
    static int (*real)(int);
    const char *switch_file = getenv("MQ_FAIL_FSYNC");

    if (switch_file != NULL && access(switch_file, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (real == NULL)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(descriptor);
}
