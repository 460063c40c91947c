//! t
use std::time::Instant;
use unjank_session::apps::place::Places;
use unjank_session::index::{build::*, layout::*, sources::Sources, *};
fn main() {
    let l = "/usr/lib/x86_64-linux-gnu";
    let s = Sources {
        plugin_roots: vec![format!("{l}/qt5/plugins").into(), format!("{l}/qt6/plugins").into()],
        gio_dirs: vec![format!("{l}/gio/modules").into()],
        places: Places {
            config_home: Some("/root/.config".into()),
            config_dirs: vec!["/etc/xdg".into()],
            data_home: Some("/root/.local/share".into()),
            data_dirs: vec!["/usr/local/share".into(), "/usr/share".into()],
            desktops: vec!["kde".into()],
            path: vec!["/usr/bin".into(), "/bin".into()],
        },
        locale: "de_DE.UTF-8".into(),
    };
    for _ in 0..5 {
        let t = Instant::now();
        let b = build(&s, None, Look::Files).unwrap();
        println!(
            "build {:?} {} bytes {} plugins {} apps {} opened {} faults",
            t.elapsed(),
            b.image.len(),
            b.plugins,
            b.applications,
            b.opened,
            b.faults.len()
        );
        std::fs::write("/tmp/ix.gvdb", &b.image).unwrap();
    }
    for _ in 0..3 {
        let t = Instant::now();
        let i = Index::open("/tmp/ix.gvdb".as_ref()).unwrap();
        let st = i.stale().map(|p| p.to_owned());
        let p = i.plugin("kio_file").map(|p| p.path().unwrap().to_owned());
        println!("first {:?} stale {st:?} {p:?}", t.elapsed());
        let t = Instant::now();
        for _ in 0..10000 {
            std::hint::black_box(i.plugin(std::hint::black_box("kio_file")));
        }
        println!("by id {:?}", t.elapsed() / 10000);
        let t = Instant::now();
        for _ in 0..10000 {
            for r in i.apps_by(AppKey::MimeType, std::hint::black_box("text/plain")) {
                std::hint::black_box(r.text("Name"));
            }
        }
        println!("by mime {:?}", t.elapsed() / 10000);
        let t = Instant::now();
        println!("whole {} {:?}", i.is_whole(), t.elapsed());
        let t = Instant::now();
        let b = build(&s, Some(&i), Look::Directories).unwrap();
        println!("rebuild same {:?} opened {}", t.elapsed(), b.opened);
        let t = Instant::now();
        let b = build(&s, Some(&i), Look::Files).unwrap();
        println!("rebuild files {:?} opened {}", t.elapsed(), b.opened);
        println!("inputs {}", i.inputs().count());
    }
}
