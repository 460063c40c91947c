// Uses the model of unjank-qt.h under the eyes of QAbstractItemModelTester. Run as: qt DIRECTORY COUNT (of files "file N")
#include <unjank-qt.h>

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QDir>
#include <QPersistentModelIndex>
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

    UnjankModel missing("/not/there");
    waitFor([&] { return !missing.isLoading(); });
    CHECK(missing.rowCount() == 0 && missing.error() == QLatin1String("No such file or directory"));
    puts("good");
    return 0;
}
