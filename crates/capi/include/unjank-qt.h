/*
 * unjank-qt.h: a QAbstractItemModel over a listing of libunjank, for Qt 5.15 and
 * Qt 6.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Header-only, without moc. Compile as C++17 with
 * $(pkg-config --cflags --libs unjank Qt6Widgets).
 *
 *     QTreeView view;
 *     view.setUniformRowHeights(true);
 *     view.setModel(new UnjankModel("/usr/bin", &view));
 *
 * The columns are name, size, type and modified. Icons and types are found by
 * name when a view asks for them. While the directory is read the model has a
 * screenful of rows; the others come at once when their names are sorted, since
 * a QTreeView goes through all its rows after each change. No other turn of the
 * event loop takes longer than a few milliseconds. All of it belongs to the
 * thread that made the model.
 */
#ifndef UNJANK_QT_H
#define UNJANK_QT_H

#include <QAbstractItemModel>
#include <QDateTime>
#include <QElapsedTimer>
#include <QFile>
#include <QHash>
#include <QIcon>
#include <QLocale>
#include <QMimeDatabase>
#include <QSocketNotifier>
#include <QTimer>
#include <QVector>

#ifdef QT_WIDGETS_LIB
#include <QApplication>
#include <QStyle>
#endif

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <vector>

#include <unjank.h>

/** The rows of a directory. */
class UnjankModel : public QAbstractItemModel
{
public:
    /** What data() gives beside what views ask for. */
    enum Role {
        IdRole = Qt::UserRole + 1, /**< the number of the entry, for unjank_listing_entry() */
        PathRole,                  /**< its whole path, as bytes */
        BytesRole,                 /**< its length, a quint64; invalid until it is known */
        ModifiedRole,              /**< when it changed, a QDateTime; invalid until it is known */
        ModeRole,                  /**< st_mode; invalid until it is known */
        MimeTypeRole               /**< the name of its MIME type */
    };
    enum Column { NameColumn, SizeColumn, TypeColumn, ModifiedColumn, ColumnCount };

    /** Lists a directory and follows its changes. If there are no descriptors or threads the model is empty,
     *  and error() says so. */
    explicit UnjankModel(const QByteArray &path, QObject *parent = nullptr)
        : QAbstractItemModel(parent), m_path(path)
    {
        unjank_listing_options options{};
        options.size = sizeof options;
        options.fields = UNJANK_SIZE | UNJANK_MODE | UNJANK_MODIFIED;
        options.flags = UNJANK_FOLLOW;
        if (unjank_listing_open(path.constData(), &options, &m_listing) < 0 ||
            unjank_model_open(m_listing, nullptr, &m_model) < 0) {
            m_error = QString::fromUtf8(unjank_error_text());
            m_loading = false;
            return;
        }
        m_timer.setSingleShot(true);
        m_timer.setTimerType(Qt::PreciseTimer);
        QObject::connect(&m_timer, &QTimer::timeout, this, [this] { turn(); });
        m_ready = new QSocketNotifier(unjank_listing_fd(m_listing), QSocketNotifier::Read, this);
        QObject::connect(m_ready, &QSocketNotifier::activated, this, [this] {
            /* What was received already does not show at the descriptor. */
            m_ready->setEnabled(false);
            turn();
        });
        m_time.start();
    }

    ~UnjankModel() override
    {
        delete m_ready;
        unjank_model_close(m_model);
        unjank_listing_close(m_listing);
    }

    UnjankModel(const UnjankModel &) = delete;
    UnjankModel &operator=(const UnjankModel &) = delete;

    /** Whether the directory is still being read for the first time. */
    bool isLoading() const { return m_loading; }
    /** What went wrong with the directory itself, or an empty text. */
    QString error() const { return m_error; }
    /** Called when the directory was read for the first time, or could not be read. */
    std::function<void()> finished;
    /** The listing, for what this model has no role for. */
    unjank_listing *listing() const { return m_listing; }

    QModelIndex index(int row, int column, const QModelIndex &parent = QModelIndex()) const override
    {
        if (parent.isValid() || row < 0 || row >= m_rows.size() || column < 0 || column >= ColumnCount)
            return QModelIndex();
        return createIndex(row, column);
    }

    QModelIndex parent(const QModelIndex &) const override { return QModelIndex(); }
    int rowCount(const QModelIndex &parent = QModelIndex()) const override { return parent.isValid() ? 0 : int(m_rows.size()); }
    int columnCount(const QModelIndex & = QModelIndex()) const override { return ColumnCount; }
    bool hasChildren(const QModelIndex &parent = QModelIndex()) const override { return !parent.isValid(); }
    QModelIndex sibling(int row, int column, const QModelIndex &) const override { return index(row, column); }

    Qt::ItemFlags flags(const QModelIndex &index) const override
    {
        if (!index.isValid())
            return Qt::NoItemFlags;
        return Qt::ItemIsSelectable | Qt::ItemIsEnabled | Qt::ItemNeverHasChildren;
    }

    QVariant headerData(int section, Qt::Orientation orientation, int role) const override
    {
        static const char *const titles[] = {"Name", "Size", "Type", "Modified"};
        if (orientation != Qt::Horizontal || section < 0 || section >= ColumnCount)
            return QVariant();
        if (role == Qt::TextAlignmentRole)
            return int((section == SizeColumn ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
        return role == Qt::DisplayRole ? QVariant(QString::fromLatin1(titles[section])) : QVariant();
    }

    QHash<int, QByteArray> roleNames() const override
    {
        QHash<int, QByteArray> names = QAbstractItemModel::roleNames();
        names.insert(IdRole, "id");
        names.insert(PathRole, "path");
        names.insert(BytesRole, "bytes");
        names.insert(ModifiedRole, "modified");
        names.insert(ModeRole, "mode");
        names.insert(MimeTypeRole, "mimeType");
        return names;
    }

    QVariant data(const QModelIndex &index, int role) const override
    {
        if (!index.isValid() || index.row() >= m_rows.size())
            return QVariant();
        const int column = index.column();
        if (role == Qt::TextAlignmentRole)
            return int((column == SizeColumn ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
        const bool isAsked = role == Qt::DisplayRole || role >= IdRole ||
                             (role == Qt::DecorationRole && column == NameColumn);
        unjank_entry entry{};
        entry.size = sizeof entry;
        if (!isAsked || unjank_listing_entry(m_listing, m_rows[index.row()], &entry) < 0)
            return QVariant();
        if (!entry.fields && !entry.error && !m_asked.contains(m_rows[index.row()])) {
            /* What is shown is read before all others. */
            m_asked.insert(m_rows[index.row()], index.row());
            m_wanted.append(m_rows[index.row()]);
        }
        switch (role) {
        case Qt::DisplayRole:
            return text(entry, column);
        case Qt::DecorationRole:
            return looks(type(entry)) ? QVariant(looks(type(entry))->icon) : QVariant();
        case IdRole:
            return m_rows[index.row()];
        case PathRole:
            return QByteArray(m_path + '/' + QByteArray(entry.name, int(entry.name_length)));
        case BytesRole:
            return entry.fields & UNJANK_SIZE ? QVariant(quint64(entry.bytes)) : QVariant();
        case ModeRole:
            return entry.fields & UNJANK_MODE ? QVariant(entry.mode) : QVariant();
        case ModifiedRole:
            return entry.modified.known ? QVariant(modified(entry)) : QVariant();
        case MimeTypeRole:
            return type(entry).name();
        default:
            return QVariant();
        }
    }

    void sort(int column, Qt::SortOrder order = Qt::AscendingOrder) override
    {
        static const uint32_t by[] = {UNJANK_BY_NAME, UNJANK_BY_SIZE, UNJANK_BY_TYPE, UNJANK_BY_MODIFIED};
        if (column < 0 || column >= ColumnCount || !m_model)
            return;
        unjank_model_options options{};
        options.size = sizeof options;
        options.by = by[column];
        options.flags = UNJANK_IN_SLICES | (order == Qt::DescendingOrder ? UNJANK_DESCENDING : 0);
        const int set = unjank_model_set(m_model, &options);
        if (set == 0)
            follow(true);
        if (set <= 0)
            return;
        /* Of many rows the event loop sorts some in each turn; the view has the old order until all are sorted. */
        m_ended = false;
        m_ready->setEnabled(false);
        m_timer.start(0);
    }

private:
    /* How long the event loop is held for what arrived and how long it has for other things then, the first rows, when names
     * come no more, and how long a view waits for them. All but the rows in milliseconds. */
    static constexpr int Budget = 4, Pause = 2, First = 64, Quiet = 60, Patience = 1000;

    static QString name(const unjank_entry &entry) { return QFile::decodeName(QByteArray(entry.name, int(entry.name_length))); }
    static QDateTime modified(const unjank_entry &entry)
    {
        return QDateTime::fromMSecsSinceEpoch(entry.modified.seconds * 1000 + entry.modified.nanoseconds / 1000000);
    }

    /* The type of what is no file, or else by the name alone; all names with one extension have one type. */
    QMimeType type(const unjank_entry &entry) const
    {
        const mode_t mode = entry.fields & UNJANK_MODE ? entry.mode : mode_t(entry.type) << 12;
        const char *special = S_ISDIR(mode)  ? "inode/directory"
                              : S_ISLNK(mode)  ? "inode/symlink"
                              : S_ISFIFO(mode) ? "inode/fifo"
                              : S_ISSOCK(mode) ? "inode/socket"
                              : S_ISCHR(mode)  ? "inode/chardevice"
                              : S_ISBLK(mode)  ? "inode/blockdevice"
                                               : nullptr;
        if (special)
            return m_types.mimeTypeForName(QLatin1String(special));
        const QString whole = name(entry);
        const QString extension = whole.mid(whole.indexOf(QLatin1Char('.'), 1));
        const bool has = extension.size() < whole.size() || extension.startsWith(QLatin1Char('.'));
        const QString key = has ? extension : whole;
        auto known = m_typeOf.constFind(key);
        if (known == m_typeOf.constEnd()) {
            /* Names without an extension are not kept for ever. */
            if (m_typeOf.size() > 4096)
                m_typeOf.clear();
            known = m_typeOf.insert(key, m_types.mimeTypeForFile(whole, QMimeDatabase::MatchExtension));
        }
        if (known->isDefault() && mode & S_IXUSR)
            return m_types.mimeTypeForName(QStringLiteral("application/x-executable"));
        return *known;
    }

    /* How files of a type look. */
    struct Looks {
        QIcon icon;
        QString comment;
    };

    /* Icons and descriptions are read from files when a view first asks for them, one type in a turn of the event loop. */
    const Looks *looks(const QMimeType &type) const
    {
        const auto known = m_looks.constFind(type.name());
        if (known != m_looks.constEnd())
            return &*known;
        if (!m_unseen.contains(type))
            m_unseen.append(type);
        if (!m_timer.isActive())
            m_timer.start(0);
        return nullptr;
    }

    void findLooks()
    {
        if (m_unseen.isEmpty())
            return;
        const QMimeType type = m_unseen.takeFirst();
        QIcon icon = QIcon::fromTheme(type.iconName());
        if (icon.isNull())
            icon = QIcon::fromTheme(type.genericIconName());
#ifdef QT_WIDGETS_LIB
        /* A desktop without a theme of icons has those of its style. */
        if (icon.isNull() && qApp->inherits("QApplication"))
            icon = QApplication::style()->standardIcon(type.name() == QLatin1String("inode/directory") ? QStyle::SP_DirIcon
                                                                                                       : QStyle::SP_FileIcon);
#endif
        m_looks.insert(type.name(), Looks{icon, type.comment()});
        if (m_unseen.isEmpty() && !m_rows.isEmpty())
            Q_EMIT dataChanged(createIndex(0, 0), createIndex(int(m_rows.size()) - 1, ColumnCount - 1));
    }

    QVariant text(const unjank_entry &entry, int column) const
    {
        switch (column) {
        case NameColumn:
            return name(entry);
        case SizeColumn:
            return entry.fields & UNJANK_SIZE && !S_ISDIR(entry.mode)
                ? QVariant(QLocale().formattedDataSize(qint64(entry.bytes))) : QVariant();
        case TypeColumn:
            return looks(type(entry)) ? QVariant(looks(type(entry))->comment) : QVariant();
        default:
            return entry.modified.known ? QVariant(QLocale().toString(modified(entry), QLocale::ShortFormat)) : QVariant();
        }
    }

    /* One turn of the event loop: takes what arrived, for a part of a frame. */
    void turn()
    {
        unjank_event event{};
        event.size = sizeof event;
        QElapsedTimer time;
        time.start();
        int more;
        do {
            more = m_ended ? -1 : unjank_listing_next(m_listing, 0, &event);
            if (more <= 0)
                break;
            if (event.type == UNJANK_NAMES || event.type == UNJANK_SORTED)
                m_named = m_time.elapsed();
            if (m_first < 0)
                m_first = m_time.elapsed();
            /* Changes that others make on a network file system are not told; that is no failure of the rows. */
            if (event.type == UNJANK_FAILED && !(event.step == UNJANK_STEP_FOLLOW && event.error == -EOPNOTSUPP))
                m_error = QString::fromLocal8Bit(strerror(-event.error));
            if (event.type == UNJANK_ATTRIBUTES && !m_reading)
                tell(event);
            m_has |= event.type != UNJANK_DONE;
            if (event.type == UNJANK_DONE)
                m_reading = false;
        } while (time.elapsed() < Budget);
        if (more < 0 && !m_ended) {
            m_ended = true;
            m_first = qMax<qint64>(m_first, 0);
            m_error = QString::fromUtf8(unjank_error_text());
            m_reading = false;
        }
        tellAsked();
        follow(false);
        findLooks();
        if (!m_wanted.isEmpty() && m_reading)
            unjank_listing_want(m_listing, m_wanted.constData(), size_t(m_wanted.size()));
        m_wanted.clear();
        if (m_loading && !m_reading && m_open) {
            m_loading = false;
            m_asked.clear();
            if (finished)
                finished();
        }
        if (more > 0 || m_has || m_loading || !m_unseen.isEmpty())
            m_timer.start(more > 0 ? Pause : 8);
        if (more == 0)
            m_ready->setEnabled(true);
    }

    /* Tells of rows that were shown without attributes and have them now. */
    void tellAsked()
    {
        for (auto asked = m_asked.begin(); asked != m_asked.end();) {
            unjank_entry entry{};
            entry.size = sizeof entry;
            if (unjank_listing_entry(m_listing, asked.key(), &entry) == 0 && !entry.fields && !entry.error) {
                ++asked;
                continue;
            }
            tell(asked.key(), asked.value());
            asked = m_asked.erase(asked);
        }
    }

    void tell(uint32_t id, int row)
    {
        uint32_t found;
        if (row < 0 || row >= m_rows.size() || m_rows[row] != id)
            row = unjank_model_row(m_model, id, &found) == 0 && int(found) < m_rows.size() ? int(found) : -1;
        if (row >= 0)
            Q_EMIT dataChanged(createIndex(row, 0), createIndex(row, ColumnCount - 1));
    }

    void tell(const unjank_event &event)
    {
        if (event.count > 1000) {
            if (!m_rows.isEmpty())
                Q_EMIT dataChanged(createIndex(0, 0), createIndex(int(m_rows.size()) - 1, ColumnCount - 1));
            return;
        }
        for (uint32_t at = 0; at < event.count; at++)
            tell(event.ids ? event.ids[at] : event.first + at, -1);
    }

    QVector<uint32_t> ids(uint32_t from, uint32_t count) const
    {
        QVector<uint32_t> ids(int(count), 0);
        uint32_t given = 0;
        unjank_model_ids(m_model, from, count, ids.data(), &given);
        ids.resize(int(given));
        return ids;
    }

    /* Follows the order of the library's model: a screenful while names arrive, all rows then. */
    void follow(bool now)
    {
        const qint64 time = m_time.elapsed();
        if (!m_open && (!m_reading || time - m_named > Quiet || time - m_first > Patience) && m_first >= 0)
            m_open = now = true;
        if (!m_has && !now)
            return;
        /* A view goes through all rows after a change of many, so these come seldom while they cost much. */
        if (!now && m_reading && time - m_followed < (m_open ? qMax<qint64>(1000, 10 * m_cost) : 100) && !m_rows.isEmpty())
            return;
        unjank_row_change changes[8], change{};
        const int count = unjank_model_changes(m_model, changes, 8);
        int moves = 0;
        for (int at = 0; at < count; at++) {
            if (changes[at].type == UNJANK_ROWS_UPDATED)
                continue;
            change = changes[at];
            moves++;
        }
        uint32_t rows = 0;
        unjank_model_rows(m_model, &rows);
        if (!m_open)
            rows = qMin<uint32_t>(rows, First);
        m_has = false;
        m_followed = time;
        if (moves == 1 && m_open && rows == uint32_t(m_rows.size()) + change.count && change.type == UNJANK_ROWS_INSERTED) {
            beginInsertRows(QModelIndex(), int(change.row), int(change.row + change.count) - 1);
            const QVector<uint32_t> came = ids(change.row, change.count);
            m_rows.insert(int(change.row), int(change.count), 0);
            std::copy(came.begin(), came.end(), m_rows.begin() + change.row);
            endInsertRows();
        } else if (moves == 1 && m_open && rows + change.count == uint32_t(m_rows.size()) && change.type == UNJANK_ROWS_REMOVED) {
            beginRemoveRows(QModelIndex(), int(change.row), int(change.row + change.count) - 1);
            m_rows.remove(int(change.row), int(change.count));
            endRemoveRows();
        } else if (moves > 0 || rows != uint32_t(m_rows.size())) {
            rearrange(rows);
        }
        m_cost = m_time.elapsed() - time;
    }

    /* Where entries are in a list, by their numbers. */
    static QHash<uint32_t, int> places(const QVector<uint32_t> &rows, const QVector<uint32_t> &wanted)
    {
        QHash<uint32_t, int> found;
        for (const uint32_t id : wanted)
            found.insert(id, -1);
        for (int at = 0; at < rows.size() && !found.isEmpty(); at++) {
            const auto place = found.find(rows[at]);
            if (place != found.end())
                *place = at;
        }
        return found;
    }

    /* The entries that views refer to: those that are selected, the current one. */
    QVector<uint32_t> kept() const
    {
        QVector<uint32_t> kept;
        const QModelIndexList indexes = persistentIndexList();
        for (const QModelIndex &index : indexes)
            kept.append(m_rows[index.row()]);
        return kept;
    }

    /* Makes the rows those of the order: those that came are put at the end, all get into their places, and those that
     * are gone are taken from the end. So what is selected stays selected wherever it goes. */
    void rearrange(uint32_t rows)
    {
        QVector<uint32_t> order = ids(0, rows);
        if (!m_open) {
            /* What is selected stays also where it is behind the first rows now, in the order of all. */
            const QHash<uint32_t, int> shown = places(order, kept());
            QVector<uint32_t> behind;
            for (auto at = shown.begin(); at != shown.end(); ++at) {
                uint32_t row;
                if (at.value() < 0 && unjank_model_row(m_model, at.key(), &row) == 0)
                    behind.append(row);
            }
            std::sort(behind.begin(), behind.end());
            for (const uint32_t row : behind)
                order += ids(row, 1);
        }
        const uint32_t highest = qMax(highestOf(m_rows), highestOf(order));
        std::vector<bool> isThere(size_t(highest) + 1, false), stays(size_t(highest) + 1, false);
        for (const uint32_t id : m_rows)
            isThere[id] = true;
        for (const uint32_t id : order)
            stays[id] = true;
        const auto isGone = [&stays](uint32_t id) { return !stays[id]; };
        QVector<uint32_t> came, all = order;
        std::copy_if(order.begin(), order.end(), std::back_inserter(came), [&isThere](uint32_t id) { return !isThere[id]; });
        std::copy_if(m_rows.begin(), m_rows.end(), std::back_inserter(all), isGone);
        if (!came.isEmpty()) {
            beginInsertRows(QModelIndex(), int(m_rows.size()), int(m_rows.size() + came.size()) - 1);
            m_rows += came;
            endInsertRows();
        }
        if (m_rows != all) {
            Q_EMIT layoutAboutToBeChanged();
            const QModelIndexList from = persistentIndexList();
            const QVector<uint32_t> entries = kept();
            const QHash<uint32_t, int> now = places(all, entries);
            QModelIndexList to;
            for (int at = 0; at < from.size(); at++)
                to.append(createIndex(now.value(entries[at]), from[at].column()));
            m_rows = all;
            changePersistentIndexList(from, to);
            Q_EMIT layoutChanged();
        }
        if (order.size() < m_rows.size()) {
            beginRemoveRows(QModelIndex(), int(order.size()), int(m_rows.size()) - 1);
            m_rows.resize(order.size());
            endRemoveRows();
        }
    }

    static uint32_t highestOf(const QVector<uint32_t> &rows)
    {
        return rows.isEmpty() ? 0 : *std::max_element(rows.begin(), rows.end());
    }

    QByteArray m_path;
    QString m_error;
    unjank_listing *m_listing = nullptr;
    unjank_model *m_model = nullptr;
    QSocketNotifier *m_ready = nullptr;
    mutable QTimer m_timer;
    QElapsedTimer m_time;
    /* The entries in the rows that views were told of. */
    QVector<uint32_t> m_rows;
    bool m_reading = true, m_loading = true, m_open = false, m_has = false, m_ended = false;
    qint64 m_named = 0, m_first = -1, m_followed = 0, m_cost = 0;
    /* What views were shown without attributes, with its row, and what is to be wished for. */
    mutable QHash<uint32_t, int> m_asked;
    mutable QVector<uint32_t> m_wanted;
    mutable QHash<QString, QMimeType> m_typeOf;
    mutable QHash<QString, Looks> m_looks;
    mutable QVector<QMimeType> m_unseen;
    QMimeDatabase m_types;
};

#endif /* UNJANK_QT_H */
