// Lists a URL through KIO and prints what comes. Run as: kio URL [quiet]: with quiet only how many and how long.
#include <KIO/ListJob>

#include <QCoreApplication>
#include <QElapsedTimer>
#include <QUrl>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int count, char **arguments)
{
    QCoreApplication application(count, arguments);
    if (count < 2)
        return 2;
    QElapsedTimer time;
    time.start();
    KIO::ListJob *job = KIO::listDir(QUrl(QString::fromLocal8Bit(arguments[1])), KIO::HideProgressInfo);
    job->setUiDelegate(nullptr);
    std::vector<std::string> lines;
    size_t entries = 0;
    qint64 first = -1;
    const bool isQuiet = count > 2;
    QObject::connect(job, &KIO::ListJob::entries, [&](KIO::Job *, const KIO::UDSEntryList &list) {
        if (first < 0)
            first = time.nsecsElapsed();
        entries += size_t(list.size());
        for (const KIO::UDSEntry &entry : list) {
            if (isQuiet)
                break;
            using U = KIO::UDSEntry;
            lines.push_back(QStringLiteral("%1\t%2\t%3\t%4\t%5\t%6\t%7\t%8")
                                .arg(entry.stringValue(U::UDS_NAME)).arg(entry.numberValue(U::UDS_FILE_TYPE), 0, 8)
                                .arg(entry.numberValue(U::UDS_ACCESS), 0, 8).arg(entry.numberValue(U::UDS_SIZE))
                                .arg(entry.stringValue(U::UDS_USER), entry.stringValue(U::UDS_GROUP))
                                .arg(entry.numberValue(U::UDS_MODIFICATION_TIME)).arg(entry.stringValue(U::UDS_LINK_DEST)).toStdString());
        }
    });
    QObject::connect(job, &KJob::result, [&](KJob *) {
        if (job->error())
            fprintf(stderr, "error %d: %s\n", job->error(), qPrintable(job->errorString()));
        std::sort(lines.begin(), lines.end());
        for (const std::string &line : lines)
            puts(line.c_str());
        if (isQuiet)
            printf("%zu entries, first %.1f ms, all %.1f ms\n", entries, double(first) / 1e6, double(time.nsecsElapsed()) / 1e6);
        QCoreApplication::exit(job->error() ? 1 : 0);
    });
    return QCoreApplication::exec();
}
