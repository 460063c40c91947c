/* Prints what Qt says of plugins, one line of JSON each.
 *
 * Usage: qt_metadata plugin FILE...   QPluginLoader::metaData
 *        qt_metadata cbor FILE...     the CBOR map in FILE, decoded by Qt
 */
#include <QCborMap>
#include <QCborValue>
#include <QCoreApplication>
#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QPluginLoader>

#include <cstdio>

int
main (int argc, char **argv)
{
  QCoreApplication app (argc, argv);
  const QStringList words = app.arguments ();

  for (const QString &path : words.mid (2))
    {
      QJsonObject object;
      if (words[1] == QLatin1String ("plugin"))
        object = QPluginLoader (path).metaData ();
      else
        {
          QFile file (path);
          if (!file.open (QIODevice::ReadOnly))
            return 1;
          object = QCborValue::fromCbor (file.readAll ()).toMap ().toJsonObject ();
        }
      std::printf ("%s\n", QJsonDocument (object).toJson (QJsonDocument::Compact).constData ());
    }
  return 0;
}
