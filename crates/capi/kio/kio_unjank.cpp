// A KIO worker that lists directories through libunjank: unjank:/usr/bin is file:/usr/bin.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// It lists and tells of files; whoever opens one is sent to its file: URL. For KDE Frameworks 5.96 and later, and 6.
#include <KIO/UDSEntry>
#include <KIO/WorkerBase>

#include <QCoreApplication>
#include <QFile>
#include <QHash>
#include <QMimeDatabase>
#include <QUrl>

#include <cerrno>
#include <climits>
#include <cstring>
#include <dirent.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unjank.h>

namespace
{

// Names the plugin and its protocol.
class KioPlugin : public QObject
{
    Q_OBJECT
    Q_PLUGIN_METADATA(IID "org.kde.kio.worker.unjank" FILE "unjank.json")
};

// Entries that are sent at once: few at first, so that a view has something to show.
constexpr int FirstBatch = 100, Batch = 2000;

KIO::WorkerResult failure(int number, const QString &path)
{
    switch (number) {
    case ENOENT:
        return KIO::WorkerResult::fail(KIO::ERR_DOES_NOT_EXIST, path);
    case EACCES:
    case EPERM:
        return KIO::WorkerResult::fail(KIO::ERR_ACCESS_DENIED, path);
    case ENOTDIR:
        return KIO::WorkerResult::fail(KIO::ERR_IS_FILE, path);
    case ENOMEM:
        return KIO::WorkerResult::fail(KIO::ERR_OUT_OF_MEMORY, path);
    default:
        return KIO::WorkerResult::fail(KIO::ERR_CANNOT_ENTER_DIRECTORY, path + QLatin1String(": ") + QString::fromLocal8Bit(strerror(number)));
    }
}

class UnjankWorker : public KIO::WorkerBase
{
public:
    UnjankWorker(const QByteArray &pool, const QByteArray &application) : WorkerBase("unjank", pool, application) {}

    KIO::WorkerResult listDir(const QUrl &url) override
    {
        const QByteArray path = localPath(url);
        const KIO::StatDetails details = statDetails();
        unjank_listing_options options{};
        options.size = sizeof options;
        // Names and types are there without a look at each file.
        const bool isBasic = details == KIO::StatBasic;
        if (!isBasic)
            options.fields = UNJANK_SIZE | UNJANK_MODE | UNJANK_OWNER | UNJANK_MODIFIED | UNJANK_ACCESSED | UNJANK_BORN |
                             UNJANK_INODE;
        unjank_listing *listing;
        int result = unjank_listing_open(path.constData(), &options, &listing);
        if (result < 0)
            return failure(-result, url.path());
        KIO::UDSEntryList batch;
        const auto send = [&](int least) {
            if (batch.size() < least)
                return;
            listEntries(batch);
            batch.clear();
            batch.reserve(Batch);
        };
        int failed = 0, limit = FirstBatch;
        unjank_event event{};
        event.size = sizeof event;
        while ((result = unjank_listing_next(listing, -1, &event)) > 0) {
            if (wasKilled()) {
                unjank_listing_close(listing);
                return KIO::WorkerResult::pass();
            }
            if (event.type == UNJANK_FAILED && event.step <= UNJANK_STEP_TOO_LARGE)
                failed = -event.error;
            if (event.type != (isBasic ? UNJANK_NAMES : UNJANK_ATTRIBUTES))
                continue;
            for (uint32_t at = 0; at < event.count; at++) {
                unjank_entry entry{};
                entry.size = sizeof entry;
                const uint32_t id = event.ids ? event.ids[at] : event.first + at;
                // What is gone meanwhile was not listed.
                if (unjank_listing_entry(listing, id, &entry) < 0 || entry.error == ENOENT)
                    continue;
                if (isBasic)
                    batch.append(basicEntry(path, entry));
                else if (S_ISLNK(entry.mode))
                    batch.append(fileEntry(path + '/' + QByteArray(entry.name, int(entry.name_length)), details));
                else
                    batch.append(wholeEntry(details, entry));
                send(limit);
                if (batch.isEmpty())
                    limit = Batch;
            }
        }
        unjank_listing_close(listing);
        if (result < 0 || failed)
            return failure(failed ? failed : -result, url.path());
        for (const char *name : {".", ".."})
            batch.append(fileEntry(path + '/' + name, details));
        send(1);
        return KIO::WorkerResult::pass();
    }

    KIO::WorkerResult stat(const QUrl &url) override
    {
        const QByteArray path = localPath(url);
        struct stat status;
        if (lstat(path.constData(), &status) != 0)
            return failure(errno, url.path());
        KIO::UDSEntry entry = fileEntry(path, statDetails(), url.fileName().isEmpty() ? QStringLiteral(".") : url.fileName());
        entry.fastInsert(KIO::UDSEntry::UDS_LOCAL_PATH, QFile::decodeName(path));
        statEntry(entry);
        return KIO::WorkerResult::pass();
    }

    KIO::WorkerResult mimetype(const QUrl &url) override
    {
        mimeType(QMimeDatabase().mimeTypeForFile(QFile::decodeName(localPath(url))).name());
        return KIO::WorkerResult::pass();
    }

    KIO::WorkerResult get(const QUrl &url) override
    {
        redirection(QUrl::fromLocalFile(QFile::decodeName(localPath(url))));
        return KIO::WorkerResult::pass();
    }

private:
    static QByteArray localPath(const QUrl &url)
    {
        const QByteArray path = QFile::encodeName(url.path(QUrl::FullyDecoded));
        return path.isEmpty() ? QByteArray("/") : path;
    }

    KIO::StatDetails statDetails() const
    {
        const QString details = metaData(QStringLiteral("statDetails"));
        return details.isEmpty() ? KIO::StatDefaultDetails : KIO::StatDetails(details.toInt());
    }

    static void insertType(KIO::UDSEntry &entry, mode_t mode)
    {
        entry.fastInsert(KIO::UDSEntry::UDS_FILE_TYPE, mode & S_IFMT);
    }

    KIO::UDSEntry basicEntry(const QByteArray &path, const unjank_entry &from) const
    {
        const QByteArray name(from.name, int(from.name_length));
        if (from.type == DT_UNKNOWN)
            return fileEntry(path + '/' + name, KIO::StatBasic);
        KIO::UDSEntry entry;
        entry.reserve(3);
        entry.fastInsert(KIO::UDSEntry::UDS_NAME, QFile::decodeName(name));
        if (from.type == DT_LNK)
            entry.fastInsert(KIO::UDSEntry::UDS_LINK_DEST, QStringLiteral("Dummy Link Target"));
        insertType(entry, DTTOIF(from.type));
        return entry;
    }

    KIO::UDSEntry wholeEntry(KIO::StatDetails details, const unjank_entry &from)
    {
        KIO::UDSEntry entry;
        entry.reserve(10);
        entry.fastInsert(KIO::UDSEntry::UDS_NAME, QFile::decodeName(QByteArray(from.name, int(from.name_length))));
        if (details & KIO::StatBasic) {
            insertType(entry, mode_t(from.mode));
            entry.fastInsert(KIO::UDSEntry::UDS_ACCESS, from.mode & 07777);
            entry.fastInsert(KIO::UDSEntry::UDS_SIZE, qint64(from.bytes));
        }
        if (details & KIO::StatUser) {
            entry.fastInsert(KIO::UDSEntry::UDS_USER, userName(from.user));
            entry.fastInsert(KIO::UDSEntry::UDS_GROUP, groupName(from.group));
        }
        if (details & KIO::StatTime) {
            entry.fastInsert(KIO::UDSEntry::UDS_MODIFICATION_TIME, from.modified.seconds);
            entry.fastInsert(KIO::UDSEntry::UDS_ACCESS_TIME, from.accessed.seconds);
            if (from.born.known)
                entry.fastInsert(KIO::UDSEntry::UDS_CREATION_TIME, from.born.seconds);
        }
        if (details & KIO::StatInode)
            entry.fastInsert(KIO::UDSEntry::UDS_INODE, qint64(from.inode));
        return entry;
    }

    // One file, by system calls of its own. Of a link KIO has what it leads to, where it leads anywhere.
    KIO::UDSEntry fileEntry(const QByteArray &path, KIO::StatDetails details, const QString &name = QString()) const
    {
        KIO::UDSEntry entry;
        const int slash = path.lastIndexOf('/');
        entry.fastInsert(KIO::UDSEntry::UDS_NAME, name.isEmpty() ? QFile::decodeName(path.mid(slash + 1)) : name);
        struct stat status, led;
        bool leadsNowhere = false;
        if (lstat(path.constData(), &status) != 0)
            return entry;
        if (S_ISLNK(status.st_mode)) {
            char target[PATH_MAX];
            const ssize_t length = readlink(path.constData(), target, sizeof target);
            if (details & KIO::StatBasic)
                entry.fastInsert(KIO::UDSEntry::UDS_LINK_DEST, QFile::decodeName(QByteArray(target, int(qMax<ssize_t>(length, 0)))));
            if (details & KIO::StatResolveSymlink && ::stat(path.constData(), &led) == 0)
                status = led;
            else if (details & KIO::StatResolveSymlink)
                leadsNowhere = true;
        }
        if (details & KIO::StatBasic) {
            // file: has this type and no length for a link that leads nowhere.
            entry.fastInsert(KIO::UDSEntry::UDS_FILE_TYPE, leadsNowhere ? S_IFMT - 1 : status.st_mode & S_IFMT);
            entry.fastInsert(KIO::UDSEntry::UDS_ACCESS, status.st_mode & 07777);
            entry.fastInsert(KIO::UDSEntry::UDS_SIZE, leadsNowhere ? 0 : status.st_size);
        }
        if (details & KIO::StatUser) {
            entry.fastInsert(KIO::UDSEntry::UDS_USER, userName(status.st_uid));
            entry.fastInsert(KIO::UDSEntry::UDS_GROUP, groupName(status.st_gid));
        }
        if (details & KIO::StatTime) {
            entry.fastInsert(KIO::UDSEntry::UDS_MODIFICATION_TIME, status.st_mtim.tv_sec);
            entry.fastInsert(KIO::UDSEntry::UDS_ACCESS_TIME, status.st_atim.tv_sec);
        }
        if (details & KIO::StatInode) {
            entry.fastInsert(KIO::UDSEntry::UDS_DEVICE_ID, qint64(status.st_dev));
            entry.fastInsert(KIO::UDSEntry::UDS_INODE, qint64(status.st_ino));
        }
        return entry;
    }

    QString userName(uint32_t number) const
    {
        auto known = m_users.constFind(number);
        if (known == m_users.constEnd()) {
            const passwd *user = getpwuid(number);
            known = m_users.insert(number, user ? QString::fromLocal8Bit(user->pw_name) : QString::number(number));
        }
        return *known;
    }

    QString groupName(uint32_t number) const
    {
        auto known = m_groups.constFind(number);
        if (known == m_groups.constEnd()) {
            const group *found = getgrgid(number);
            known = m_groups.insert(number, found ? QString::fromLocal8Bit(found->gr_name) : QString::number(number));
        }
        return *known;
    }

    mutable QHash<uint32_t, QString> m_users, m_groups;
};

} // namespace

extern "C" Q_DECL_EXPORT int kdemain(int count, char **arguments)
{
    QCoreApplication application(count, arguments);
    application.setApplicationName(QStringLiteral("kio_unjank"));
    if (count != 4)
        return 2;
    UnjankWorker worker(arguments[2], arguments[3]);
    worker.dispatchLoop();
    return 0;
}

#include "kio_unjank.moc"
