/* Measures what KDE Frameworks 5 takes to answer, and prints what it answers.
 *
 * Usage: kservice service NAME ROUNDS     KService::serviceByDesktopName
 *        kservice mime TYPE ROUNDS        KApplicationTrader::queryByMimeType
 *        kservice plugins ROUNDS [DIR...] KPluginMetaData::findPlugins in each directory below Qt's plugin paths
 *
 * They print one line a round: nanoseconds and how many were found. The first round is the first question of
 * this process, with opening and checking the cache.
 */
#include <KApplicationTrader>
#include <KPluginMetaData>
#include <KService>

#include <QCoreApplication>
#include <QElapsedTimer>
#include <QStringList>

#include <cstdio>
#include <functional>

static int
measure (int rounds, const std::function<int ()> &ask)
{
  QElapsedTimer timer;

  for (int round = 0; round < rounds; round++)
    {
      timer.start ();
      const int found = ask ();
      const qint64 took = timer.nsecsElapsed ();
      std::printf ("%lld %d\n", static_cast<long long> (took), found);
    }
  return 0;
}

int
main (int argc, char **argv)
{
  QCoreApplication app (argc, argv);
  const QStringList words = app.arguments ();

  if (words.size () < 3)
    {
      std::fprintf (stderr, "usage: kservice service|mime|plugins ...\n");
      return 2;
    }
  const QString what = words[1];

  if (what == QLatin1String ("plugins"))
    {
      const QStringList directories = words.mid (3);
      return measure (words[2].toInt (), [&directories] {
        int found = 0;
        for (const QString &directory : directories)
          found += KPluginMetaData::findPlugins (directory).size ();
        return found;
      });
    }
  if (words.size () != 4)
    return 2;
  const QString value = words[2];
  if (what == QLatin1String ("service"))
    return measure (words[3].toInt (), [&value] { return KService::serviceByDesktopName (value) ? 1 : 0; });
  if (what == QLatin1String ("mime"))
    return measure (words[3].toInt (), [&value] { return KApplicationTrader::queryByMimeType (value).size (); });
  return 2;
}
