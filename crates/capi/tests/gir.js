// The list model by GJS: gir.js DIRECTORY
imports.gi.versions.Unjank = '0';
const { Gio, GLib, Unjank } = imports.gi;

const model = Unjank.ListModel.open(ARGV[0], Unjank.ListFlags.HIDDEN);
const loop = new GLib.MainLoop(null, false);
GLib.timeout_add_seconds(GLib.PRIORITY_DEFAULT, 60, () => { throw new Error('it was not read within 60 s'); });
model.connect('notify::loading', () => { if (!model.is_loading()) loop.quit(); });
if (model.is_loading())
    loop.run();
model.check();
const item = model.get_item(0);
print(`${model instanceof Gio.ListModel} ${model.get_n_items()} ${item.dup_name()} ${item.is_directory()}`);
