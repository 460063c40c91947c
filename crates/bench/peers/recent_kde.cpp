// What KDE does with recent documents, measured from inside and shown as text.
//
// Usage: recent_kde add DIRECTORY COUNT [DESKTOP-ID [PAUSE_MS]]   adds DIRECTORY/0 … one after the other
//        recent_kde list                               prints the URLs that KRecentDocument reads, one a line
//        recent_kde links                              prints the link files that it lists, one a line
//        recent_kde clear                              clears the list
//
// `add` prints JSON: the time of each call in milliseconds.
// It is no graphical program. What lies below $TMPDIR is not remembered; `list` and `links` remove what is gone.

#include <KRecentDocument>
#include <QCoreApplication>
#include <QElapsedTimer>
#include <QThread>
#include <QUrl>
#include <cstdio>
#include <cstring>
#include <vector>

int main(int argc, char **argv)
{
    QCoreApplication application(argc, argv);
    const QStringList arguments = application.arguments();
    const QString verb = arguments.value(1);
    if (verb == QLatin1String("add") && arguments.size() >= 4) {
        const int count = arguments[3].toInt();
        const QString id = arguments.value(4, QStringLiteral("org.kde.kate"));
        const unsigned long pause = arguments.value(5).toULong();
        std::vector<double> times;
        for (int i = 0; i < count; i++) {
            const QUrl url = QUrl::fromLocalFile(QStringLiteral("%1/%2").arg(arguments[2]).arg(i));
            QElapsedTimer timer;
            timer.start();
            KRecentDocument::add(url, id);
            times.push_back(double(timer.nsecsElapsed()) / 1e6);
            QThread::msleep(pause);
        }
        std::printf("{\"call_ms\":[");
        for (size_t i = 0; i < times.size(); i++) {
            std::printf("%s%.3f", i ? "," : "", times[i]);
        }
        std::printf("]}\n");
        return 0;
    }
    if (verb == QLatin1String("list")) {
        for (const QUrl &url : KRecentDocument::recentUrls()) {
            std::printf("%s\n", url.toEncoded().constData());
        }
        return 0;
    }
    if (verb == QLatin1String("links")) {
        for (const QString &path : KRecentDocument::recentDocuments()) {
            std::printf("%s\n", path.toLocal8Bit().constData());
        }
        return 0;
    }
    if (verb == QLatin1String("clear")) {
        KRecentDocument::clear();
        return 0;
    }
    std::fprintf(stderr, "Usage: recent_kde add DIRECTORY COUNT [DESKTOP-ID [PAUSE_MS]] | list | links | clear\n");
    return 2;
}
