/* Ends the program with the line and the last error of libunjank where something is not as it must be. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <unjank.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, unjank_error_text()); \
            exit(1); \
        } \
    } while (0)

#endif
