/* Measures a listing with attributes beside readdir and fstatat, in turns, in one process.
 * Run as: list_bench DIRECTORY [ROUNDS] */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <unjank.h>

struct sums {
    uint64_t names, letters, bytes, seconds, inodes;
};

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* What a program does today: every name and its attributes, kept. */
static double by_readdir(const char *path, struct sums *sums)
{
    struct kept {
        char *name;
        struct stat status;
    };
    double begin = now_ms();
    DIR *directory = opendir(path);
    if (!directory) {
        perror(path);
        exit(1);
    }
    int fd = dirfd(directory);
    size_t room = 1024, count = 0;
    struct kept *all = malloc(room * sizeof *all);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count == room)
            all = realloc(all, (room *= 2) * sizeof *all);
        if (fstatat(fd, entry->d_name, &all[count].status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        all[count++].name = strdup(entry->d_name);
    }
    for (size_t at = 0; at < count; at++) {
        sums->names++;
        sums->letters += strlen(all[at].name);
        sums->bytes += (uint64_t)all[at].status.st_size;
        sums->seconds += (uint64_t)all[at].status.st_mtim.tv_sec;
        sums->inodes += all[at].status.st_ino;
    }
    double end = now_ms();
    for (size_t at = 0; at < count; at++)
        free(all[at].name);
    free(all);
    closedir(directory);
    return end - begin;
}

/* The same without keeping anything: the system calls alone. */
static double by_calls_alone(const char *path, struct sums *sums)
{
    double begin = now_ms();
    DIR *directory = opendir(path);
    if (!directory) {
        perror(path);
        exit(1);
    }
    int fd = dirfd(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        sums->names++;
        sums->letters += strlen(entry->d_name);
        sums->bytes += (uint64_t)status.st_size;
        sums->seconds += (uint64_t)status.st_mtim.tv_sec;
        sums->inodes += status.st_ino;
    }
    closedir(directory);
    return now_ms() - begin;
}

static double by_unjank(const char *path, struct sums *sums, double *first, double *named)
{
    double begin = now_ms();
    unjank_listing *listing;
    unjank_event event = {.size = sizeof event};
    *first = *named = 0;
    int more = unjank_listing_open(path, NULL, &listing);
    if (more < 0) {
        fprintf(stderr, "%s\n", unjank_error_text());
        exit(1);
    }
    while ((more = unjank_listing_next(listing, -1, &event)) > 0) {
        if (event.type == UNJANK_NAMES) {
            unjank_names names = {.size = sizeof names};
            unjank_listing_names(listing, event.first, &names);
            for (uint32_t row = 0; row < names.count; row++)
                sums->letters += unjank_name_length(&names, row);
            sums->names += names.count;
            *named = now_ms() - begin;
            if (*first == 0)
                *first = *named;
        } else if (event.type == UNJANK_ATTRIBUTES) {
            unjank_attributes columns = {.size = sizeof columns};
            unjank_listing_attributes(listing, &columns);
            for (uint32_t row = 0; row < columns.count; row++) {
                sums->bytes += columns.bytes[row];
                sums->seconds += (uint64_t)unjank_unpack_time(columns.modified[row]).seconds;
                sums->inodes += columns.inode[row];
            }
        }
    }
    double end = now_ms();
    if (more < 0) {
        fprintf(stderr, "%s\n", unjank_error_text());
        exit(1);
    }
    unjank_listing_close(listing);
    return end - begin;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double show(const char *name, double *times, int rounds)
{
    qsort(times, (size_t)rounds, sizeof *times, compare);
    double median = (times[(rounds - 1) / 2] + times[rounds / 2]) / 2;
    printf("%-34s %9.1f ms [%.1f ... %.1f]\n", name, median, times[0], times[rounds - 1]);
    return median;
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[2]) : 7;
    if (count < 2 || rounds < 1 || rounds > 100) {
        fprintf(stderr, "usage: list_bench DIRECTORY [ROUNDS]\n");
        return 2;
    }
    double kept[100], alone[100], ours[100], first[100], named[100];
    struct sums sums[3];
    /* Once before, so that the first who is measured does not fill the cache for the others. */
    by_calls_alone(arguments[1], memset(&sums[0], 0, sizeof sums[0]));
    for (int round = 0; round < rounds; round++) {
        memset(sums, 0, sizeof sums);
        /* Each is first in every third round. */
        for (int turn = 0; turn < 3; turn++) {
            switch ((turn + round) % 3) {
            case 0: kept[round] = by_readdir(arguments[1], &sums[0]); break;
            case 1: alone[round] = by_calls_alone(arguments[1], &sums[1]); break;
            case 2: ours[round] = by_unjank(arguments[1], &sums[2], &first[round], &named[round]); break;
            }
        }
        if (memcmp(&sums[0], &sums[2], sizeof sums[0]) || memcmp(&sums[1], &sums[2], sizeof sums[0])) {
            fprintf(stderr, "list_bench: they do not find the same\n");
            return 1;
        }
    }
    printf("%" PRIu64 " entries with attributes, %d rounds in turns: median [least ... most]\n",
           sums[2].names, rounds);
    double kept_median = show("readdir + fstatat, kept", kept, rounds);
    double alone_median = show("readdir + fstatat, not kept", alone, rounds);
    double our_median = show("libunjank, columns lent", ours, rounds);
    show("  its first names", first, rounds);
    show("  all of its names", named, rounds);
    printf("libunjank / readdir + fstatat: 1/%.2f of kept, 1/%.2f of not kept\n",
           kept_median / our_median, alone_median / our_median);
    return 0;
}
