// A program of Qt in which hangs are planted: see hangs_plants.h.
#include "hangs_plants.h"

#include <glib.h>

#include <QApplication>
#include <QDBusConnection>
#include <QDBusMessage>
#include <QLabel>
#include <QSocketNotifier>
#include <QTimer>

static int toolkit_call(const char *name, int ms)
{
    QDBusMessage call = QDBusMessage::createMethodCall(QString::fromLatin1(name), QStringLiteral("/"),
                                                       QStringLiteral("org.unjank.bench"), QStringLiteral("Answer"));
    call << static_cast<unsigned>(ms);
    const QDBusMessage answer = QDBusConnection::sessionBus().call(call, QDBus::Block, 20000);
    return answer.type() == QDBusMessage::ReplyMessage;
}

// Qt waits with GLib's loop, whose sources are asked before and after each wait; this one is asked first.
static gboolean before_wait(GSource *, int *timeout)
{
    *timeout = -1;
    plants_loop_waits();
    return FALSE;
}

static gboolean after_wait(GSource *)
{
    plants_loop_runs();
    return FALSE;
}

static gboolean never(GSource *, GSourceFunc, gpointer)
{
    return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv)
{
    if (!plants_begin(argc, argv)) {
        return 2;
    }
    QApplication application(argc, argv);
    if (plants_blinks) {
        QDBusConnection::sessionBus();
    }
    QLabel label;
    label.resize(100, 40);
    label.show();
    static GSourceFuncs measure = {before_wait, after_wait, never, nullptr, nullptr, nullptr};
    GSource *source = g_source_new(&measure, sizeof(GSource));
    g_source_set_priority(source, G_MININT);
    g_source_attach(source, nullptr);
    QSocketNotifier orders(STDIN_FILENO, QSocketNotifier::Read);
    QObject::connect(&orders, &QSocketNotifier::activated, &application, [&orders] {
        if (!plants_order()) {
            orders.setEnabled(false);
            QCoreApplication::quit();
        }
    });
    QTimer blink;
    blink.setTimerType(Qt::PreciseTimer);
    QObject::connect(&blink, &QTimer::timeout, &application, [&label] {
        plants_blink();
        label.setText(label.text().isEmpty() ? QStringLiteral("|") : QString());
    });
    if (plants_blinks) {
        blink.start(static_cast<int>(BLINK_NS / 1000000));
    }
    plants_ready();
    return QApplication::exec();
}
