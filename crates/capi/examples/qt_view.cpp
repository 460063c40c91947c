// A QTreeView over a directory, and what it costs beside QFileSystemModel and KDirModel.
// c++ -std=c++17 -fPIC qt_view.cpp $(pkg-config --cflags --libs unjank Qt6Widgets)
// Run as: qt_view DIRECTORY [unjank | qt | kde | floor] [SECONDS]
// With SECONDS it prints figures: the window is shown and at rest before the directory is loaded into it, and when all is there
// it is scrolled for so long. "kde" is there if it was compiled with -DWITH_KIO and KF5KIOWidgets. "floor" is no directory:
// 500,000 rows that are there from the begin and cost nothing to make, which shows what QTreeView itself takes.
#include <unjank-qt.h>

#include <QApplication>
#include <QFileSystemModel>
#include <QHeaderView>
#include <QScrollBar>
#include <QTreeView>

#ifdef WITH_KIO
#include <KDirLister>
#include <KDirModel>
#endif

#include <cstdio>
#include <cstring>
#include <ctime>

namespace
{

// What is measured in one part of a run, in milliseconds.
struct Part {
    double turn = 0; // the longest event, from its delivery to its end
    double work = 0; // the most processor time of one
};

Part loading, scrolling, *part = nullptr;
double begun = 0, firstRows = 0, changed = 0;

double now()
{
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) * 1e3 + double(time.tv_nsec) / 1e6;
}

double processorTime()
{
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e3 + double(time.tv_nsec) / 1e6;
}

// Measures what each event takes.
class Application : public QApplication
{
public:
    using QApplication::QApplication;
    bool notify(QObject *receiver, QEvent *event) override
    {
        if (m_depth || !part)
            return QApplication::notify(receiver, event);
        const double begin = now(), work = processorTime();
        m_depth++;
        const bool result = QApplication::notify(receiver, event);
        m_depth--;
        if (part) {
            const double took = processorTime() - work;
            if (took > 12 && qEnvironmentVariableIsSet("QT_VIEW_TURNS"))
                fprintf(stderr, "%.1f ms of processor at %.1f ms: %s, event %d\n", took, begin - begun,
                        receiver->metaObject()->className(), int(event->type()));
            part->turn = qMax(part->turn, now() - begin);
            part->work = qMax(part->work, took);
        }
        return result;
    }

private:
    int m_depth = 0;
};

class View : public QTreeView
{
protected:
    void paintEvent(QPaintEvent *event) override
    {
        QTreeView::paintEvent(event);
        if (part == &loading && !firstRows && model() && model()->rowCount(rootIndex()) > 0)
            firstRows = now();
    }
};

// Rows that are there from the begin.
class Floor : public QAbstractItemModel
{
public:
    explicit Floor(int rows) : m_rows(rows) {}
    QModelIndex index(int row, int column, const QModelIndex &) const override { return createIndex(row, column); }
    QModelIndex parent(const QModelIndex &) const override { return QModelIndex(); }
    int rowCount(const QModelIndex &parent) const override { return parent.isValid() ? 0 : m_rows; }
    int columnCount(const QModelIndex &) const override { return 4; }
    bool hasChildren(const QModelIndex &parent) const override { return !parent.isValid(); }
    Qt::ItemFlags flags(const QModelIndex &) const override
    {
        return Qt::ItemIsSelectable | Qt::ItemIsEnabled | Qt::ItemNeverHasChildren;
    }
    QVariant data(const QModelIndex &index, int role) const override
    {
        return role == Qt::DisplayRole ? QVariant(QStringLiteral("file-%1").arg(index.row())) : QVariant();
    }

private:
    int m_rows;
};

QAbstractItemModel *load(const char *path, const QByteArray &source, View &view)
{
    QAbstractItemModel *model = nullptr;
    QModelIndex root;
    const QString place = QFile::decodeName(path);
    begun = now();
    part = &loading;
    if (source == "qt") {
        auto *files = new QFileSystemModel(&view);
        root = files->setRootPath(place);
        model = files;
#ifdef WITH_KIO
    } else if (source == "kde") {
        auto *files = new KDirModel(&view);
        files->dirLister()->openUrl(QUrl::fromLocalFile(place));
        model = files;
#endif
    } else if (source == "floor") {
        model = new Floor(500000);
    } else {
        auto *files = new UnjankModel(path, &view);
        if (!files->error().isEmpty()) {
            fprintf(stderr, "qt_view: %s\n", qPrintable(files->error()));
            std::exit(1);
        }
        model = files;
    }
    const auto note = [] { changed = now(); };
    QObject::connect(model, &QAbstractItemModel::rowsInserted, &view, note);
    QObject::connect(model, &QAbstractItemModel::dataChanged, &view, note);
    QObject::connect(model, &QAbstractItemModel::layoutChanged, &view, note);
    view.setModel(model);
    view.setRootIndex(root);
    return model;
}

// Waits until nothing came for two seconds, scrolls, prints and ends.
void measure(const QByteArray &source, View &view, QAbstractItemModel *model, double seconds)
{
    auto *timer = new QTimer(&view);
    timer->start(100);
    QObject::connect(timer, &QTimer::timeout, &view, [=, &view] {
        const auto *ours = dynamic_cast<UnjankModel *>(model);
        if (!firstRows || (ours && ours->isLoading()) || now() - qMax(changed, firstRows) < 2000)
            return;
        timer->stop();
        part = &scrolling;
        auto *frames = new QTimer(&view);
        frames->setTimerType(Qt::PreciseTimer);
        const double complete = qMax(changed, firstRows), end = now() + seconds * 1000;
        QObject::connect(frames, &QTimer::timeout, &view, [=, &view] {
            view.verticalScrollBar()->setValue(view.verticalScrollBar()->value() + 70);
            if (now() < end)
                return;
            part = nullptr;
            printf("%-6s Qt %s, %d rows: first %.1f ms, complete %.1f ms; longest event, loading: %.1f ms (%.1f ms of "
                   "processor), scrolling: %.1f ms (%.1f ms of processor)\n",
                   source.constData(), qVersion(), model->rowCount(view.rootIndex()), firstRows - begun, complete - begun,
                   loading.turn, loading.work, scrolling.turn, scrolling.work);
            fflush(stdout);
            QCoreApplication::quit();
        });
        frames->start(16);
    });
}

} // namespace

int main(int count, char **arguments)
{
    Application application(count, arguments);
    QIcon::setFallbackThemeName(QStringLiteral("breeze"));
    const char *path = count > 1 ? arguments[1] : ".";
    const QByteArray source = count > 2 ? arguments[2] : "unjank";
    View view;
    view.setUniformRowHeights(true);
    view.setRootIsDecorated(false);
    view.setAlternatingRowColors(true);
    view.setVerticalScrollMode(QAbstractItemView::ScrollPerPixel);
    view.setWindowTitle(QFile::decodeName(path));
    view.resize(900, 600);
    view.show();
    const auto begin = [&, path] {
        QAbstractItemModel *model = load(path, source, view);
        view.header()->resizeSection(0, 360);
        if (count > 3)
            measure(source, view, model, std::atof(arguments[3]));
        else if (source == "unjank") {
            view.header()->setSortIndicator(0, Qt::AscendingOrder);
            view.setSortingEnabled(true);
        }
    };
    // Fonts are loaded and the window is at rest before anything is measured.
    Floor before(50);
    if (count > 3)
        view.setModel(&before);
    QTimer::singleShot(count > 3 ? 500 : 0, &view, begin);
    return Application::exec();
}
