/*
 * unjank.h: directory listings, settings, recent documents, applications and
 * plugins for programs in C and in languages that call C.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Link with libunjank (pkg-config unjank). The page docs/c-library.md has an
 * example of each part.
 *
 * Results
 *   A function that can fail returns a negative errno (-ENOENT, -EINVAL ...)
 *   and leaves its output untouched; 0 or a positive number is success, and
 *   each function says which. unjank_error_text() has the failure in words.
 *   The library prints nothing, changes no signal and does not touch errno on
 *   purpose. It never ends the program.
 *
 * Handles
 *   A handle is a pointer that is never dereferenced by the program. A handle
 *   that is NULL, closed, or of another type is -EBADF, wherever it is given:
 *   the library looks a handle up before it uses it, and never gives the same
 *   value twice.
 *
 * Structures
 *   Each structure begins with its size, which the caller sets before each
 *   call: s.size = sizeof s. Later versions may add members at the end, and a
 *   library never writes beyond the size that it is given.
 *
 * Threads
 *   Every function may be called from any thread, and a handle may be handed
 *   from one thread to another. Two calls with the same handle must not run at
 *   the same time: the second returns -EBUSY and does nothing.
 *   unjank_listing_cancel() is the exception, it may be called at any time.
 *   What a handle lent (names, columns, texts) may be read by other threads as
 *   long as the lender's rule says that it stays.
 *
 * fork
 *   The library may be used in a child that was forked without exec, but not
 *   with handles from before: they are -ESTALE there.
 *
 * Main loops
 *   A descriptor that a function returns is readable when there is something to
 *   take. It belongs to the handle: watch it with poll, epoll, g_unix_fd_add or
 *   QSocketNotifier, do not read it and do not close it.
 */
#ifndef UNJANK_H
#define UNJANK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libunjank lends columns of little-endian numbers and is made for such machines only"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UNJANK_API __attribute__((visibility("default")))
#else
#define UNJANK_API
#endif

/* ------------------------------------------------------------ the library */

/**
 * Returns the version of the library that is loaded, as "0.2.0". The text stays
 * for ever. Never fails.
 */
UNJANK_API const char *unjank_version(void);

/**
 * Returns what the last call that failed in this thread says for people, in one
 * line without a full stop: "cannot start listing \"/a\": Too many open files".
 * Bytes of others in it are escaped. "" if no call failed. The text stays until
 * the next call fails in this thread. Never fails.
 */
UNJANK_API const char *unjank_error_text(void);

/* --------------------------------------------------------------- listings */

/** A listing of one directory, and what arrived of it. */
typedef struct unjank_listing unjank_listing;

/** Attributes that a listing can be asked for beside names and types. */
enum {
    UNJANK_SIZE = 1 << 0,        /**< length in bytes */
    UNJANK_MODE = 1 << 1,        /**< type and permissions, as st_mode */
    UNJANK_OWNER = 1 << 2,       /**< numbers of user and group */
    UNJANK_MODIFIED = 1 << 3,    /**< when the contents changed */
    UNJANK_ACCESSED = 1 << 4,    /**< when it was read */
    UNJANK_CHANGED = 1 << 5,     /**< when contents or attributes changed */
    UNJANK_BORN = 1 << 6,        /**< when it was made, where file systems keep that */
    UNJANK_INODE = 1 << 7,       /**< number of the inode */
    UNJANK_LINKS = 1 << 8,       /**< how many names the inode has */
    UNJANK_BLOCKS = 1 << 9,      /**< blocks of 512 bytes */
    UNJANK_DEVICE = 1 << 10,     /**< of a device node: which device */
    UNJANK_FILE_SYSTEM = 1 << 11, /**< the device that it is on */
    UNJANK_TARGET = 1 << 12,     /**< of a link: where it leads */
    UNJANK_MIME_TYPE = 1 << 13,  /**< the MIME type by name */
    UNJANK_OWNER_NAMES = 1 << 14, /**< names of users and groups */
    /** size, mode, owner, the four times, inode */
    UNJANK_DEFAULT_FIELDS = (1 << 8) - 1
};

/** Options of a listing. */
enum {
    /** Changes of the directory arrive after it was read, until it is closed. */
    UNJANK_FOLLOW = 1 << 0,
    /** The daemon of the session is asked first, which shares what it reads. */
    UNJANK_DAEMON = 1 << 1,
    /** A worker process reads: a file system that hangs stops nothing here. */
    UNJANK_WORKER = 1 << 2
};

/**
 * How a directory is listed. Of the ways that are asked for, the first that
 * works is taken: daemon, worker process, threads of this process. Without
 * UNJANK_DAEMON and UNJANK_WORKER, threads of this process list at once.
 */
typedef struct unjank_listing_options {
    size_t size;      /**< sizeof(unjank_listing_options) */
    uint32_t fields;  /**< UNJANK_SIZE | ...; 0 is names and types alone */
    uint32_t flags;   /**< UNJANK_FOLLOW | ... */
    uint32_t threads; /**< threads that read attributes; 0 is chosen for you */
    uint32_t most;    /**< most entries; 0 is 20 million */
    /** The program for UNJANK_WORKER; NULL is "unjank" in $PATH. */
    const char *worker;
    /** The socket for UNJANK_DAEMON; NULL is $XDG_RUNTIME_DIR/unjank/listing.sock. */
    const char *daemon;
} unjank_listing_options;

/** What unjank_listing_next() tells of. */
enum {
    /** Names and types of the entries first ... first + count - 1 arrived. */
    UNJANK_NAMES = 1,
    /** Attributes of the entries in ids arrived, for the first time or anew. */
    UNJANK_ATTRIBUTES = 2,
    /** The entries in ids are gone. Their ids are never given again. */
    UNJANK_REMOVED = 3,
    /** The entries in ids have other names. */
    UNJANK_RENAMED = 4,
    /** The directory itself failed: step and error say how. */
    UNJANK_FAILED = 5,
    /** Everything was read once; count is the number of entries. */
    UNJANK_DONE = 6,
    /** Models put count more of the names that had arrived into their rows, or got
     *  further with an order that unjank_model_set() chose. */
    UNJANK_SORTED = 7
};

/** What was being done with the directory when it failed. */
enum {
    UNJANK_STEP_OPEN = 1,      /**< it was opened */
    UNJANK_STEP_READ = 2,      /**< its names were read */
    UNJANK_STEP_REPEATS = 3,   /**< it gave the same names again and again */
    UNJANK_STEP_TOO_LARGE = 4, /**< it has more entries than the options allow */
    /** Its changes cannot be followed. With -EOPNOTSUPP they are, but for those
     *  that are made without this system's kernel: on a network file system by
     *  another machine, or in /proc. Nothing is missing in what was listed. */
    UNJANK_STEP_FOLLOW = 5,
    UNJANK_STEP_GONE = 6       /**< it was removed, moved or unmounted */
};

/** One thing that happened in a listing. */
typedef struct unjank_event {
    size_t size;    /**< sizeof(unjank_event) */
    uint32_t type;  /**< UNJANK_NAMES ... */
    uint32_t first; /**< the first entry, where ids is NULL */
    uint32_t count; /**< how many entries */
    uint32_t step;  /**< of UNJANK_FAILED: UNJANK_STEP_OPEN ... */
    /** Of UNJANK_FAILED: a negative errno. Where the system reported none,
     *  -ELOOP stands for UNJANK_STEP_REPEATS, -EOVERFLOW for
     *  UNJANK_STEP_TOO_LARGE, -ENOENT for UNJANK_STEP_GONE and -EIO for
     *  UNJANK_STEP_FOLLOW. */
    int32_t error;
    uint32_t reserved;
    /** count ids, or NULL: first, first + 1 ... Lent until the next call of
     *  unjank_listing_next(). */
    const uint32_t *ids;
} unjank_event;

/**
 * Names and types that arrived together, where they arrived. Lent until the
 * listing is closed.
 */
typedef struct unjank_names {
    size_t size;           /**< sizeof(unjank_names) */
    uint32_t first;        /**< the id of the first entry */
    uint32_t count;        /**< how many entries */
    const uint8_t *types;  /**< d_type of each: DT_DIR, DT_REG ..., DT_UNKNOWN */
    const uint32_t *ends;  /**< where each name ends in text, behind its NUL */
    const char *text;      /**< the names one after another, each with a NUL */
} unjank_names;

/** An entry whose attributes could not be read. */
typedef struct unjank_failure {
    uint32_t row;  /**< its row in the columns */
    int32_t error; /**< a positive errno */
} unjank_failure;

/**
 * Attributes that arrived together, a column for each field that was asked for;
 * the others are NULL. Lent until the next call of unjank_listing_next().
 */
typedef struct unjank_attributes {
    size_t size;         /**< sizeof(unjank_attributes) */
    uint32_t fields;     /**< which columns there are */
    uint32_t first;      /**< the id of the first row, where ids is NULL */
    uint32_t count;      /**< how many rows */
    uint32_t failures;   /**< how many of them could not be read */
    const uint32_t *ids; /**< the id of each row, or NULL: first, first + 1 ... */
    const uint64_t *bytes; /**< length */
    const uint16_t *mode;  /**< st_mode */
    const uint64_t *owner; /**< user << 32 | group */
    const uint64_t *modified; /**< times are packed: unjank_unpack_time() */
    const uint64_t *accessed;
    const uint64_t *changed;
    const uint64_t *born;
    const uint64_t *inode;
    const uint32_t *links;
    const uint64_t *blocks;
    const uint64_t *device;      /**< major << 32 | minor */
    const uint64_t *file_system; /**< major << 32 | minor */
    /** Of links: number of the text << 32 | st_mode of what it leads to, 0 if
     *  it leads nowhere. The text is that of unjank_listing_text(). */
    const uint64_t *target;
    /** Number of the text with the MIME type, 0 is none. */
    const uint32_t *mime_type;
    const unjank_failure *failed; /**< which rows could not be read, and why */
} unjank_attributes;

/** A time as file systems keep it. */
typedef struct unjank_time {
    int64_t seconds;      /**< since 1970-01-01 00:00 UTC */
    uint32_t nanoseconds; /**< below 1,000,000,000 */
    uint32_t known;       /**< 1 if the time is known */
} unjank_time;

/** Everything about one entry, for those who want one and not a column. */
typedef struct unjank_entry {
    size_t size;        /**< sizeof(unjank_entry) */
    /** The name with a NUL behind it. Lent until the listing is closed. */
    const char *name;
    size_t name_length; /**< without the NUL */
    uint32_t fields;    /**< which of the following are known now */
    uint32_t type;      /**< d_type; DT_UNKNOWN until its attributes arrived */
    uint32_t removed;   /**< 1 if the entry is gone */
    int32_t error;      /**< why it could not be read, a positive errno, or 0 */
    uint64_t bytes;
    uint64_t inode;
    uint64_t blocks;
    uint32_t mode;
    uint32_t user;
    uint32_t group;
    uint32_t links;
    uint32_t device_major, device_minor;
    uint32_t file_system_major, file_system_minor;
    uint32_t target;      /**< number of the text, 0 is none */
    uint32_t target_mode; /**< st_mode of what a link leads to, 0 is nothing */
    uint32_t mime_type;   /**< number of the text, 0 is none */
    uint32_t reserved;
    unjank_time modified, accessed, changed, born;
} unjank_entry;

/**
 * Begins to list the directory at path and gives a handle in *listing.
 * options may be NULL: default fields, by threads of this process.
 * Nothing is waited for: a directory that is not there, or may not be read, is an
 * UNJANK_FAILED of the listing and not an error here. A relative path is taken
 * from the working directory of now.
 * Close the handle with unjank_listing_close().
 * Returns 0, -EINVAL (NULL, an unknown field or flag), -ENAMETOOLONG (a path of
 * more than 4095 bytes), -EMFILE, -ENFILE, -EAGAIN (no thread), -ENOMEM.
 */
UNJANK_API int unjank_listing_open(const char *path, const unjank_listing_options *options,
                                   unjank_listing **listing);

/**
 * Ends the listing and gives back everything that it lent. Its models answer
 * -EBADF from then on; close them too. Does not wait for a file system that
 * hangs. Returns 0, -EBADF (also for the second time), -EBUSY.
 */
UNJANK_API int unjank_listing_close(unjank_listing *listing);

/**
 * Ends the reading. The call of unjank_listing_next() that runs, in whatever
 * thread, or the next one, returns -ECANCELED; what arrived stays readable.
 * May be called from any thread at any time. Returns 0 or -EBADF.
 */
UNJANK_API int unjank_listing_cancel(unjank_listing *listing);

/**
 * Returns a descriptor that is readable when unjank_listing_next() has
 * something to do. Call that with a timeout of 0 until it returns 0 before
 * waiting again. The descriptor stays the same until the handle is closed.
 * Returns it or -EBADF.
 */
UNJANK_API int unjank_listing_fd(unjank_listing *listing);

/**
 * Takes what happened next. Waits for it at most timeout_ms milliseconds; 0
 * does not wait, -1 waits for ever. Models of the listing are told, too. With 0
 * it holds a main loop for a few milliseconds at most: where many names came at
 * once, the following calls have the models sort them, and return UNJANK_SORTED.
 * Returns 1 with *event filled; 0 if nothing happened in the time, and at once
 * when everything was read of a listing that is not followed; -ECANCELED after
 * unjank_listing_cancel(); -ECONNRESET if the worker or the daemon ended;
 * -EBADMSG if it sent what cannot be trusted; -EBADF, -EBUSY, -EINVAL. After an
 * error nothing more happens; what arrived stays readable.
 */
UNJANK_API int unjank_listing_next(unjank_listing *listing, int timeout_ms, unjank_event *event);

/**
 * Lends the names that arrived together with that of the entry id. All names of
 * a listing, without a call for each:
 *     for (id = 0; id < count; id = names.first + names.count) unjank_listing_names(...)
 * Entries that were renamed have the name that they came with here.
 * Returns 0, -ENOENT (no such entry), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_listing_names(unjank_listing *listing, uint32_t id, unjank_names *names);

/**
 * Lends the attributes of the UNJANK_ATTRIBUTES that unjank_listing_next()
 * returned last. Returns 0, -ENODATA (it was something else, or types alone
 * arrived), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_listing_attributes(unjank_listing *listing, unjank_attributes *attributes);

/**
 * Gives what is known of one entry now.
 * Returns 0, -ENOENT (no such entry), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_listing_entry(unjank_listing *listing, uint32_t id, unjank_entry *entry);

/**
 * Lends the text with this number: the target of a link, a MIME type. It has no
 * NUL behind it. It stays until the listing is closed.
 * Returns 0, -ENOENT (no such text), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_listing_text(unjank_listing *listing, uint32_t number, const char **text,
                                   size_t *length);

/**
 * Lends the name of a user (is_group 0) or group, where UNJANK_OWNER_NAMES was
 * asked for and the system has a name. As unjank_listing_text().
 */
UNJANK_API int unjank_listing_owner_name(unjank_listing *listing, int is_group, uint32_t number,
                                         const char **text, size_t *length);

/**
 * Has the attributes of count entries read before all others, for the rows that
 * a view shows; those that are known already are read again.
 * Returns 0, -EAGAIN (the lister takes no message now; nothing is lost but the
 * order), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_listing_want(unjank_listing *listing, const uint32_t *ids, size_t count);

/** Unpacks a time of a column. A time with known == 0 is unknown, or is before
 *  1901 or after 2446: unjank_listing_entry() has those. */
static inline unjank_time unjank_unpack_time(uint64_t packed)
{
    unjank_time time;
    time.known = packed < UINT64_MAX - 1;
    time.seconds = time.known ? (int64_t)(packed >> 30) - INT64_C(2147483648) : 0;
    time.nanoseconds = time.known ? (uint32_t)(packed & 0x3fffffff) : 0;
    return time;
}

/**
 * Unpacks a whole column of times into nanoseconds since 1970-01-01 00:00 UTC,
 * for languages that cannot use the function above. INT64_MIN stands for a time
 * that is unknown (as above) or that does not fit (after 2262).
 * Returns 0, or how many are INT64_MIN (at most INT_MAX); -EINVAL.
 */
UNJANK_API int unjank_unpack_times(const uint64_t *packed, size_t count, int64_t *nanoseconds);

/** Returns the name in a row, with a NUL behind it. row must be below count. */
static inline const char *unjank_name(const unjank_names *names, uint32_t row)
{
    return names->text + (row ? names->ends[row - 1] : 0);
}

/** Returns the length of the name in a row. row must be below count. */
static inline size_t unjank_name_length(const unjank_names *names, uint32_t row)
{
    return (size_t)names->ends[row] - (row ? names->ends[row - 1] : 0) - 1;
}

/* ----------------------------------------------------------------- models */

/** The rows of a view: the entries of a listing in an order, filtered. */
typedef struct unjank_model unjank_model;

/** What rows are ordered by; entries that are equal in it are ordered by name. */
enum {
    UNJANK_BY_NAME = 0,
    UNJANK_BY_SIZE = 1,
    UNJANK_BY_MODIFIED = 2,
    UNJANK_BY_ACCESSED = 3,
    UNJANK_BY_CHANGED = 4,
    UNJANK_BY_BORN = 5,
    UNJANK_BY_TYPE = 6,
    UNJANK_BY_EXTENSION = 7,
    UNJANK_BY_ARRIVAL = 8
};

/** Options of a model. */
enum {
    UNJANK_DESCENDING = 1 << 0,        /**< the largest first */
    UNJANK_DIRECTORIES_MIXED = 1 << 1, /**< directories among the others, not first */
    UNJANK_SHOW_HIDDEN = 1 << 2,       /**< names with a dot at their begin, too */
    UNJANK_MATCH_CASE = 1 << 3,        /**< the filter tells a from A */
    UNJANK_GLOB = 1 << 4,              /**< the filter is a glob and no text */
    UNJANK_IN_SLICES = 1 << 5          /**< unjank_model_set() does not wait for many rows */
};

/** An order and a filter. */
typedef struct unjank_model_options {
    size_t size;    /**< sizeof(unjank_model_options) */
    uint32_t by;    /**< UNJANK_BY_NAME ... */
    uint32_t flags; /**< UNJANK_DESCENDING | ... */
    /** The language of the order, as in LC_COLLATE ("de_DE.UTF-8"); NULL is that
     *  of the environment, "C" the order of the bytes. Counts when a model is
     *  opened, not later. */
    const char *locale;
    /** A text that names must contain, or a glob (UNJANK_GLOB); NULL is none. */
    const char *filter;
} unjank_model_options;

/** What a view has to do. */
enum {
    UNJANK_ROWS_INSERTED = 1, /**< count rows are new, at row */
    UNJANK_ROWS_REMOVED = 2,  /**< count rows are gone, at row */
    UNJANK_ROW_MOVED = 3,     /**< one row left row and is at to */
    UNJANK_ROWS_UPDATED = 4,  /**< count rows have other attributes, at row */
    UNJANK_ROWS_RESET = 5     /**< any row may be another: draw the view anew */
};

/** One change of the rows; a row number is that after the changes before it. */
typedef struct unjank_row_change {
    uint32_t type;  /**< UNJANK_ROWS_INSERTED ... */
    uint32_t row;   /**< the first row */
    uint32_t count; /**< how many rows; of UNJANK_ROWS_RESET how many there are */
    uint32_t to;    /**< of UNJANK_ROW_MOVED */
} unjank_row_change;

/**
 * Makes a model of a listing and gives a handle in *model; entries that arrived
 * already are in it. unjank_listing_next() keeps it true. options may be NULL:
 * by name, directories first, hidden names left out. A model counts as one
 * handle with its listing where threads are concerned.
 * Close it with unjank_model_close().
 * Returns 0, -EINVAL, -EBADF, -EBUSY.
 */
UNJANK_API int unjank_model_open(unjank_listing *listing, const unjank_model_options *options,
                                 unjank_model **model);

/** Closes a model. Returns 0 or -EBADF, -EBUSY. */
UNJANK_API int unjank_model_close(unjank_model *model);

/**
 * Puts the rows in another order and applies another filter. With
 * UNJANK_IN_SLICES it does not wait for that where there are many: rows stay as
 * they are while calls of unjank_listing_next() with a timeout of 0 go on with it,
 * some milliseconds each, and return UNJANK_SORTED; one with another timeout
 * completes it. Then unjank_model_changes() tells UNJANK_ROWS_RESET. The last
 * order that was chosen counts.
 * Returns 0; 1 if it goes on; -EINVAL, -EBADF, -EBUSY.
 */
UNJANK_API int unjank_model_set(unjank_model *model, const unjank_model_options *options);

/** Gives the number of rows in *rows. Returns 0, -EBADF, -EBUSY, -EINVAL. */
UNJANK_API int unjank_model_rows(unjank_model *model, uint32_t *rows);

/**
 * Gives the ids of up to count entries from a row on, in order: what a view
 * shows. Returns 0 with how many there were in *given, -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_model_ids(unjank_model *model, uint32_t row, uint32_t count, uint32_t *ids,
                                uint32_t *given);

/** Gives the row of an entry. Returns 0, -ENOENT (it is not shown), -EBADF,
 *  -EBUSY, -EINVAL. */
UNJANK_API int unjank_model_row(unjank_model *model, uint32_t id, uint32_t *row);

/**
 * Gives what changed in the rows since the last call, in order. If there are
 * more changes than fit into most, or than are worth telling, it is one
 * UNJANK_ROWS_RESET. Returns how many there are, -EBADF, -EBUSY, -EINVAL (most
 * is 0).
 */
UNJANK_API int unjank_model_changes(unjank_model *model, unjank_row_change *changes, size_t most);

/* --------------------------------------------------------------- settings */

/** The settings of this user, as dconf and GSettings keep them. */
typedef struct unjank_settings unjank_settings;

/** Which of the values that a key may have. */
enum {
    UNJANK_IN_FORCE = 0,   /**< the one that programs use */
    UNJANK_USER_VALUE = 1, /**< the user's, even where a lock hides it */
    UNJANK_DEFAULT_VALUE = 2 /**< the one in force if the user's were reset */
};

/** A value as GVariant serialises it. Lent until the next call with the handle. */
typedef struct unjank_value {
    size_t size;        /**< sizeof(unjank_value) */
    const char *type;   /**< its type ("s", "as"), with a NUL behind it */
    const void *data;   /**< its bytes: those of g_variant_new_from_data() */
    size_t length;      /**< how many */
    uint32_t swapped;   /**< 1 if the numbers in it are in the other byte order */
    uint32_t reserved;
} unjank_value;

/** A change of one path. */
typedef struct unjank_change {
    /** A key ("/a/b") or, to reset all below it, a directory ("/a/"). */
    const char *path;
    /** The value in GVariant's text form ("'Inter 11'", "uint32 5", "true"), or
     *  NULL to reset. */
    const char *text;
} unjank_change;

/**
 * Opens the settings. profile is a name or an absolute path of a dconf profile,
 * or NULL for that of the environment. Databases are mapped; one that is not
 * there yet is found when it comes to be. No bus is asked, and no process
 * started. Close the handle with unjank_settings_close().
 * Returns 0, -EINVAL, -EMFILE, -ENOMEM.
 */
UNJANK_API int unjank_settings_open(const char *profile, unjank_settings **settings);

/** Closes settings. Returns 0, -EBADF, -EBUSY. */
UNJANK_API int unjank_settings_close(unjank_settings *settings);

/**
 * Gives a value as its bytes, where they are mapped. which is UNJANK_IN_FORCE ...
 * Schemas are not read: a key that nobody set is -ENOENT, and its default is in
 * the schema. Returns 0, -ENOENT, -EBADF, -EBUSY, -EINVAL (no key, no which).
 */
UNJANK_API int unjank_settings_get(unjank_settings *settings, const char *key, int which,
                                   unjank_value *value);

/**
 * Gives a value in GVariant's text form, as "dconf read" prints it, with a NUL
 * behind it. Lent until the next call with the handle. As unjank_settings_get().
 */
UNJANK_API int unjank_settings_get_text(unjank_settings *settings, const char *key, int which,
                                        const char **text);

/** Gives the value in force of a boolean, as 0 or 1. As unjank_settings_get(),
 *  and -EPROTOTYPE if it has another type. */
UNJANK_API int unjank_settings_get_boolean(unjank_settings *settings, const char *key, int *value);

/** Gives the value in force of an integer of any width ("y", "n", "q", "i", "u",
 *  "x", "t"). As unjank_settings_get(), -EPROTOTYPE if it is none, -ERANGE if it
 *  is above INT64_MAX. */
UNJANK_API int unjank_settings_get_integer(unjank_settings *settings, const char *key,
                                           int64_t *value);

/** Gives the value in force of a double. As unjank_settings_get_boolean(). */
UNJANK_API int unjank_settings_get_double(unjank_settings *settings, const char *key, double *value);

/** Gives the value in force of a string, with a NUL behind it. Lent until the
 *  next call with the handle. As unjank_settings_get_boolean(). */
UNJANK_API int unjank_settings_get_string(unjank_settings *settings, const char *key,
                                          const char **text);

/**
 * Gives the names in a directory ("/a/"), sorted: "b" for the key /a/b, "c/" for
 * the directory /a/c/. Lent until the next call with the handle.
 * Returns 0 with *names and *count, -EINVAL (no directory), -EBADF, -EBUSY.
 */
UNJANK_API int unjank_settings_list(unjank_settings *settings, const char *directory,
                                    const char *const **names, size_t *count);

/** Returns 1 if a value of the key can be set, 0 if the administrator locked it
 *  or nothing can be written; -EINVAL, -EBADF, -EBUSY. */
UNJANK_API int unjank_settings_is_writable(unjank_settings *settings, const char *key);

/**
 * Makes changes, all or none, and waits until the settings service (the owner of
 * ca.desrt.dconf on the session bus) says that they are on the disk, at most
 * timeout_ms milliseconds; -1 is 25 seconds. The only function of settings that
 * uses a bus. The next read of this handle has them.
 * Returns 0; -EINVAL (a path or a text is none, nothing was changed); -EACCES (a
 * key is locked, nothing was changed); -ENOTCONN (there is no bus, or no service:
 * nothing was changed); -ETIMEDOUT and -ECONNRESET (it is not known whether
 * anything was changed); -EREMOTEIO (the service refused, nothing was changed);
 * -EBADF, -EBUSY.
 */
UNJANK_API int unjank_settings_write(unjank_settings *settings, const unjank_change *changes,
                                     size_t count, int timeout_ms);

/**
 * Watches a key or, with all below it, a directory, beside what is watched
 * already. Files are watched, no bus, so that changes of every program are seen,
 * whoever writes them. Returns 0, -EINVAL (no path), -ENOSPC and -EMFILE (the
 * user has no inotify watches left), -EBADF, -EBUSY.
 */
UNJANK_API int unjank_settings_watch(unjank_settings *settings, const char *path);

/** Returns a descriptor that is readable when unjank_settings_changed() has
 *  something to look at. It stays the same until the handle is closed. Returns
 *  it, -EBADF or -EBUSY. */
UNJANK_API int unjank_settings_fd(unjank_settings *settings);

/**
 * Gives the keys below what is watched whose values are others than at the last
 * call, sorted, each once. Does not wait. Lent until the next call with the
 * handle. Returns 0 with *keys and *count (which may be 0), -EBADF, -EBUSY,
 * -EINVAL, or the error of reading the watch.
 */
UNJANK_API int unjank_settings_changed(unjank_settings *settings, const char *const **keys,
                                       size_t *count);

/* ------------------------------------------------------- recent documents */

/** The list of recent documents that GTK and KDE programs show. */
typedef struct unjank_recents unjank_recents;

/** A document that a program opened. */
typedef struct unjank_addition {
    size_t size;             /**< sizeof(unjank_addition) */
    const char *document;    /**< an absolute path or a URI */
    const char *mime_type;   /**< its MIME type, or NULL: by its name */
    const char *application; /**< desktop id of the program: "org.kde.kate" */
    /** The command that opens it again, "kate %u"; NULL is "xdg-open %u". */
    const char *command;
    const char *group;       /**< a group that it belongs to, or NULL */
    uint32_t is_private;     /**< 1: shown by this program alone */
    uint32_t reserved;
} unjank_addition;

/** Which recent documents are wanted. */
typedef struct unjank_recents_query {
    size_t size;             /**< sizeof(unjank_recents_query) */
    const char *application; /**< opened by one that matches this pattern; NULL is any */
    const char *mime_type;   /**< of a type that matches this pattern; NULL is any */
    const char *group;       /**< of this group; NULL is any */
    const char *below;       /**< in this folder or below it; NULL is anywhere */
    size_t most;             /**< no more than these, the latest; 0 is all */
} unjank_recents_query;

/** A recent document. Its texts are lent until the next call with the handle. */
typedef struct unjank_recent {
    size_t size;             /**< sizeof(unjank_recent) */
    const char *uri;         /**< its URI */
    const char *path;        /**< its path, or NULL if it is not in a file */
    const char *mime_type;   /**< its MIME type, or NULL */
    const char *application; /**< the program that opened it last, or NULL */
    const char *command;     /**< the command of that program, or NULL */
    int64_t used;            /**< when it was used last, microseconds since 1970 */
    int64_t added;           /**< when it came into the list */
    uint32_t count;          /**< how often that program opened it */
    uint32_t is_private;     /**< 1: only the programs that opened it shall show it */
} unjank_recent;

/**
 * Opens the recent documents of this user. Nothing is read yet, no bus is asked.
 * Close the handle with unjank_recents_close(). Returns 0, -EINVAL, -EMFILE.
 */
UNJANK_API int unjank_recents_open(unjank_recents **recents);

/** Closes recent documents. Returns 0, -EBADF, -EBUSY. */
UNJANK_API int unjank_recents_close(unjank_recents *recents);

/**
 * Remembers a document: one append to the journal that all programs share,
 * whatever the length of the list; nothing is synced. The files that GTK and KDE
 * read are written soon after by the daemon, or else by "unjank" if it is in
 * $PATH. Returns 0; 1 if the user's policy is against it (nothing was written,
 * unjank_error_text() has the reason); -EINVAL (a field cannot be remembered);
 * -EBADF, -EBUSY, the error of writing (-ENOSPC, -EROFS ...).
 */
UNJANK_API int unjank_recents_add(unjank_recents *recents, const unjank_addition *addition);

/**
 * Reads the list, with what GTK and KDE programs wrote, and finds what query asks
 * for (NULL is everything), the latest first. Returns 0 with how many in *count,
 * -EINVAL, -EBADF, -EBUSY, the error of reading.
 */
UNJANK_API int unjank_recents_list(unjank_recents *recents, const unjank_recents_query *query,
                                   size_t *count);

/** Gives what unjank_recents_list() found, by number. Returns 0, -ENOENT, -EINVAL,
 *  -EBADF, -EBUSY. */
UNJANK_API int unjank_recents_get(unjank_recents *recents, size_t number, unjank_recent *recent);

/**
 * Returns a descriptor that is readable when the list may be another one, from
 * the first call on. unjank_recents_changed() makes it unreadable again. It stays
 * the same until the handle is closed. Returns it, -ENOSPC and -EMFILE (the user
 * has no inotify watches left), -EBADF, -EBUSY.
 */
UNJANK_API int unjank_recents_fd(unjank_recents *recents);

/** Returns 1 if the list may be another one than at the last call, else 0; does
 *  not wait. -EBADF, -EBUSY, the error of reading the watch. */
UNJANK_API int unjank_recents_changed(unjank_recents *recents);

/* ----------------------------------- applications, plugins and MIME types */

/** The index of applications and plugins, and what was found in it. */
typedef struct unjank_index unjank_index;

/** What is looked for. */
enum {
    UNJANK_APPS_IN_MENU = 1,     /**< those that a menu shows; the value is NULL */
    UNJANK_APPS_FOR_TYPE = 2,    /**< those that open a MIME type, the default first */
    UNJANK_APP_BY_ID = 3,        /**< that of an identifier, "org.kde.kate.desktop" */
    UNJANK_APPS_IN_CATEGORY = 4, /**< those of a category, "Graphics" */
    UNJANK_PLUGINS = 5,          /**< all plugins of Qt and KDE; the value is NULL */
    UNJANK_PLUGINS_IN = 6,       /**< those in a directory below the roots, "kf5/kio" */
    UNJANK_PLUGIN_BY_ID = 7,     /**< that of an identifier */
    UNJANK_PLUGINS_FOR_TYPE = 8  /**< those for a MIME type */
};

/**
 * Opens the index that all programs of the user share, with texts in a language
 * (as in LC_MESSAGES), or in that of the environment (NULL). No bus is asked.
 * Close the handle with unjank_index_close(). Returns 0, -EINVAL.
 */
UNJANK_API int unjank_index_open(const char *locale, unjank_index **index);

/** Closes an index. Returns 0, -EBADF, -EBUSY. */
UNJANK_API int unjank_index_close(unjank_index *index);

/**
 * Looks for applications or plugins. The index is mapped; where the directories
 * that the answer rests on changed, it is made anew first. What the last call
 * found is given back. Returns 0 with how many in *count, -EINVAL (no such what,
 * no value), -EBADF, -EBUSY, the error of making the index.
 */
UNJANK_API int unjank_index_find(unjank_index *index, int what, const char *value, size_t *count);

/**
 * Gives a text of what was found: "Name", "Exec", "Icon", "Comment" ... of an
 * application, "Name", "Description" ... of a plugin, ".id" and ".path" of both;
 * a truth is "true" or "false", a number its digits. Lent until the next call of
 * unjank_index_find(). Returns 0, -ENOENT (it has no such text), -EPROTOTYPE (it
 * is a list), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_index_text(unjank_index *index, size_t number, const char *name,
                                 const char **text);

/** Gives a list of texts: "Categories", "MimeType", "Keywords" ... Lent until the
 *  next call with the handle. Returns 0 (*count may be 0), -ENOENT, -EBADF, -EBUSY,
 *  -EINVAL. */
UNJANK_API int unjank_index_list(unjank_index *index, size_t number, const char *name,
                                 const char *const **texts, size_t *count);

/**
 * Gives the MIME type of a file with this name; nobody looks into the file. Lent
 * until the next call with the handle. Returns 0, -ENOENT (its name does not
 * tell), -EBADF, -EBUSY, -EINVAL.
 */
UNJANK_API int unjank_index_mime_type(unjank_index *index, const char *file_name,
                                      const char **mime_type);

#ifdef __cplusplus
}
#endif

#endif /* UNJANK_H */
