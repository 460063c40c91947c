// Uses the model of unjank-qt.h under the eyes of QAbstractItemModelTester. Run as: qt DIRECTORY COUNT (of files "file N")
#include <unjank-qt.h>

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QDir>
#include <QPersistentModelIndex>
#include <QTemporaryDir>
#include <QTreeView>

#include "check.h"

namespace
{

template <typename Condition> void waitFor(Condition condition)
{
    QElapsedTimer time;
    time.start();
    while (!condition()) {
        CHECK(time.elapsed() < 60000);
        QCoreApplication::processEvents(QEventLoop::AllEvents | QEventLoop::WaitForMoreEvents, 100);
    }
}

QString nameOf(const UnjankModel &model, int row)
{
    return model.index(row, UnjankModel::NameColumn).data().toString();
}

void write(const QString &path, int bytes)
{
    QFile file(path);
    CHECK(file.open(QFile::WriteOnly));
    CHECK(file.write(QByteArray(bytes, 'x')) == bytes);
}

} // namespace

int main(int count, char **arguments)
{
    CHECK(count == 3);
    const int files = atoi(arguments[2]);
    QApplication application(count, arguments);
    QTreeView view;
    view.setUniformRowHeights(true);
    UnjankModel model(arguments[1]);
    const QAbstractItemModelTester tester(&model, QAbstractItemModelTester::FailureReportingMode::Fatal);
    bool isFinished = false;
    model.finished = [&] { isFinished = true; };
    view.setModel(&model);
    view.show();
    waitFor([&] { return isFinished && model.rowCount() == files; });
    CHECK(!model.isLoading() && model.error().isEmpty());
    CHECK(nameOf(model, 0) == QLatin1String("file 0") && nameOf(model, 9) == QLatin1String("file 9"));
    waitFor([&] { return model.index(9, UnjankModel::TypeColumn).data().toString() != QString(); });
    CHECK(model.index(9, 0).data(UnjankModel::BytesRole).toULongLong() == 9);
    CHECK(model.index(9, 0).data(UnjankModel::PathRole).toByteArray() == QByteArray(arguments[1]) + "/file 9");
    CHECK(model.index(9, UnjankModel::ModifiedColumn).data().toString() != QString());

    // What is selected stays so, whatever order the rows are in.
    const QPersistentModelIndex ninth = model.index(9, 0);
    model.sort(UnjankModel::NameColumn, Qt::DescendingOrder);
    CHECK(nameOf(model, 0) == QStringLiteral("file %1").arg(files - 1));
    CHECK(ninth.row() == files - 10 && ninth.data().toString() == QLatin1String("file 9"));
    model.sort(UnjankModel::SizeColumn, Qt::AscendingOrder);
    CHECK(ninth.data().toString() == QLatin1String("file 9"));
    model.sort(UnjankModel::NameColumn, Qt::AscendingOrder);
    CHECK(ninth.row() == 9);

    const QDir directory(QFile::decodeName(arguments[1]));
    write(directory.filePath(QStringLiteral("file 9b")), 12);
    waitFor([&] { return model.rowCount() == files + 1 && nameOf(model, 10) == QLatin1String("file 9b"); });
    CHECK(QFile::rename(directory.filePath(QStringLiteral("file 9b")), directory.filePath(QStringLiteral("file 0b"))));
    waitFor([&] { return nameOf(model, 1) == QLatin1String("file 0b"); });
    CHECK(ninth.row() == 10 && ninth.data().toString() == QLatin1String("file 9"));
    for (int at = 0; at < 500; at++)
        write(directory.filePath(QStringLiteral("more %1").arg(at)), 1);
    waitFor([&] { return model.rowCount() == files + 501; });
    CHECK(nameOf(model, files + 500) == QLatin1String("more 499") && ninth.row() == 10);
    for (int at = 0; at < 500; at++)
        CHECK(QFile::remove(directory.filePath(QStringLiteral("more %1").arg(at))));
    CHECK(QFile::remove(directory.filePath(QStringLiteral("file 0b"))));
    waitFor([&] { return model.rowCount() == files; });
    CHECK(ninth.row() == 9);

    // What is selected stays so also where it gets behind the rows that there were, and goes when its file does.
    QPersistentModelIndex last = model.index(files - 1, 0);
    const QPersistentModelIndex gone = model.index(8, 0);
    const QString lastName = nameOf(model, files - 1);
    // As a click does. Where another row is the current one and goes, a view of single rows selects its neighbour.
    view.selectionModel()->setCurrentIndex(last, QItemSelectionModel::ClearAndSelect | QItemSelectionModel::Rows);
    for (int at = 0; at < 2 * files; at++)
        write(directory.filePath(QStringLiteral("before %1").arg(at)), 1);
    CHECK(QFile::remove(directory.filePath(QStringLiteral("file 8"))));
    waitFor([&] { return model.rowCount() == 3 * files - 1; });
    CHECK(last.isValid() && last.row() == 3 * files - 2 && last.data().toString() == lastName);
    CHECK(view.selectionModel()->isRowSelected(last.row(), QModelIndex()) && !gone.isValid());
    // All but the selected one and one more go at once, and others come.
    for (int at = 0; at < 2 * files; at++)
        CHECK(QFile::rename(directory.filePath(QStringLiteral("before %1").arg(at)), directory.filePath(QStringLiteral("zz %1").arg(at))));
    for (int at = 0; at < files - 1; at++)
        if (at != 8 && at != 9)
            CHECK(QFile::remove(directory.filePath(QStringLiteral("file %1").arg(at))));
    waitFor([&] { return model.rowCount() == 2 * files + 2; });
    CHECK(last.isValid() && last.row() == 1 && last.data().toString() == lastName && ninth.row() == 0);
    CHECK(view.selectionModel()->isRowSelected(1, QModelIndex()));
    CHECK(nameOf(model, 2) == QLatin1String("zz 0"));

    // So it does while names arrive, in whatever order they come.
    const QTemporaryDir large;
    for (int at = 0; at < 20000; at++)
        write(large.filePath(QStringLiteral("%1").arg(at * 7919 % 20000)), 0);
    UnjankModel arriving(QFile::encodeName(large.path()));
    const QAbstractItemModelTester arrivalTester(&arriving, QAbstractItemModelTester::FailureReportingMode::Fatal);
    waitFor([&] { return arriving.rowCount() > 0; });
    const QPersistentModelIndex early = arriving.index(arriving.rowCount() - 1, 0);
    const QString earlyName = early.data().toString();
    waitFor([&] { return !arriving.isLoading() && arriving.rowCount() == 20000; });
    CHECK(early.isValid() && early.data().toString() == earlyName && early.row() == earlyName.toInt());

    UnjankModel missing("/not/there");
    waitFor([&] { return !missing.isLoading(); });
    CHECK(missing.rowCount() == 0 && missing.error() == QLatin1String("No such file or directory"));
    // In one where not every change is noticed, the rows are all there.
    UnjankModel unnoticed("/proc/self");
    waitFor([&] { return !unnoticed.isLoading(); });
    CHECK(unnoticed.rowCount() > 10 && unnoticed.error().isEmpty());
    puts("good");
    return 0;
}
