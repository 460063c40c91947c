/* Prints what KDE's trader offers, and what of it each constraint keeps.
 *
 * Usage: ktrader SERVICETYPE NAME... <constraints, one a line
 *
 * First a line of JSON for each offer: {"path": ..., "fields": {name: [kind, value]}}, of its own properties and those of
 * the given names; kinds are the letters of our records. Then an empty line. Then for each constraint a line of JSON: the
 * places of the offers that match, counted from 0.
 */
#include <KService>
#include <KServiceTypeTrader>

#include <QCoreApplication>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QStringList>
#include <QTextStream>
#include <QVariant>

#include <cstdio>
#include <unistd.h>

static QJsonValue
field (const QVariant &value)
{
  switch (static_cast<QMetaType::Type> (value.type ()))
    {
    case QMetaType::QString:
      return QJsonArray { "s", value.toString () };
    case QMetaType::QStringList:
      return QJsonArray { "l", QJsonArray::fromStringList (value.toStringList ()) };
    case QMetaType::Bool:
      return QJsonArray { "b", value.toBool () };
    case QMetaType::Int:
    case QMetaType::UInt:
      return QJsonArray { "x", value.toInt () };
    case QMetaType::Double:
      return QJsonArray { "d", value.toDouble () };
    default:
      return QJsonValue ();
    }
}

int
main (int argc, char **argv)
{
  QCoreApplication app (argc, argv);
  const QStringList words = app.arguments ();
  if (words.size () < 2)
    return 2;
  /* KDE's scanner prints what it does not know on the standard output. */
  FILE *out = fdopen (dup (STDOUT_FILENO), "w");
  if (!out || !std::freopen ("/dev/null", "w", stdout))
    return 2;

  const KService::List all = KServiceTypeTrader::self ()->query (words[1]);
  for (const KService::Ptr &service : all)
    {
      QStringList names = service->propertyNames () + words.mid (2);
      names.removeDuplicates ();
      QJsonObject fields;
      for (const QString &name : qAsConst (names))
        {
          const QVariant value = service->property (name);
          if (value.isValid ())
            fields[name] = field (value);
        }
      const QJsonObject offer { { "path", service->entryPath () }, { "fields", fields } };
      std::fprintf (out, "%s\n", QJsonDocument (offer).toJson (QJsonDocument::Compact).constData ());
    }
  std::fprintf (out, "\n");

  QTextStream input (stdin);
  QString constraint;
  while (input.readLineInto (&constraint))
    {
      QJsonArray kept;
      const KService::List offers = KServiceTypeTrader::self ()->query (words[1], constraint);
      for (const KService::Ptr &service : offers)
        for (int at = 0; at < all.size (); at++)
          if (all[at]->entryPath () == service->entryPath ())
            {
              kept.append (at);
              break;
            }
      std::fprintf (out, "%s\n", QJsonDocument (kept).toJson (QJsonDocument::Compact).constData ());
    }
  return 0;
}
