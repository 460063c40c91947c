//! What is drawn.

use std::time::{Duration, SystemTime};

use super::*;
use crate::filter::Filter;
use crate::model::peers::DRIVER;
use crate::model::sample::{SampleMessage, seen};
use crate::stats::collect;
use report::provenance::Provenance;

fn model() -> Model {
    seen(&[
        (0, SampleMessage::owner_changed("org.example.Echo", "", ":1.2")),
        (
            10,
            SampleMessage::call(1, ":1.1", "org.example.Echo", "org.example.I.Say")
                .text("</script>"),
        ),
        (30_010, SampleMessage::answer(1, ":1.2", ":1.1").text("hello")),
        (30_020, SampleMessage::call(2, ":1.1", "org.example.Echo", "org.example.I.Say")),
        (30_030, SampleMessage::error(2, ":1.2", ":1.1", "org.freedesktop.DBus.Error.Failed")),
        (30_040, SampleMessage::signal(3, ":1.2", "org.example.I.Done")),
        (30_050, SampleMessage::directed(4, ":1.2", ":1.1", "org.example.I.Only")),
    ])
}

#[test]
fn the_text_has_a_line_a_message() {
    let model = model();
    let diagram = Diagram::new(&model, &Filter::default());
    insta::assert_snapshot!(text(&diagram), @r"
                    the bus          :1.1            Echo
    0.000000           ◉               │               │         org.freedesktop.DBus.NameOwnerChanged
    0.000010           │               │──────────────▶│         org.example.I.Say
    0.030010           │               │◀╌╌╌╌╌╌╌╌╌╌╌╌╌╌│         30.0 ms
    0.030020           │               │──────────────▶│         org.example.I.Say
    0.030030           │               │◀╌╌╌╌╌╌╌╌╌╌╌╌╌╌│         org.freedesktop.DBus.Error.Failed 10.0 µs
    0.030040           │               │               ◉         org.example.I.Done
    0.030050           │               │◀┄┄┄┄┄┄┄┄┄┄┄┄┄┄│         org.example.I.Only
    ");
}

#[test]
fn pictures_are_well_formed_and_name_everybody() {
    let model = model();
    let diagram = Diagram::new(&model, &Filter::default());
    let picture = picture(&diagram, 100, Duration::from_micros(16_667));
    assert_eq!(picture.matches("<g>").count(), 7);
    assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
    assert!(picture.contains("class=\"arc misses\"") && picture.contains("30.0 ms"));
    let graph = dot(&diagram);
    assert!(
        graph.contains("2 × Say") && graph.contains("1 errors") && graph.contains("style=dashed")
    );
    assert!(graph.contains("longest 30.0 ms"), "{graph}");
}

#[test]
fn a_page_holds_no_markup_of_others() {
    let model = model();
    let diagram = Diagram::new(&model, &Filter::default());
    let mut bodies = Bodies::default();
    bodies.of.resize(7, Text::NONE);
    bodies.of[1] = bodies.texts.keep("</script><script>alert(1)</script>");
    let stats = collect(&model, &Filter::default());
    let provenance = Provenance::of_this_machine("unjank".to_owned(), SystemTime::UNIX_EPOCH);
    let html = page(&diagram, &bodies, &stats, Duration::from_millis(16), &provenance).unwrap();
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(!html.contains("alert(1)"));
    assert!(html.len() < 100_000, "{}", html.len());
    for outside in ["https://", "url(", "@import", "<link", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn a_filter_leaves_out_messages_and_their_columns() {
    let model = model();
    let diagram = Diagram::new(&model, &"not from:org.freedesktop.DBus".parse().unwrap());
    assert_eq!((diagram.len(), diagram.columns.len()), (6, 2));
    assert_eq!(diagram.title(1).0, "Echo");
    assert!(!picture(&diagram, 100, Duration::from_millis(16)).contains(DRIVER));
    let none = Diagram::new(&model, &"member:Never".parse().unwrap());
    assert!(none.is_empty());
    assert!(picture(&none, 100, Duration::from_millis(16)).ends_with("</svg>\n"));
    assert!(!text(&none).is_empty() && dot(&none).contains("digraph"));
}
