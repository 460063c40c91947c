//! LibreOffice's histories: items of its one file of settings, an item a line, and their order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use store::disk::Disk;

use super::name::DocumentName;
use super::{RememberedDocument, StoreKind, Survey, files};
use recents::RecentsFiles;

const FILE: &str = "user/registrymodifications.xcu";
const HISTORIES: &str = "org.openoffice.Office.Histories/";

/// Returns the files of settings, one a version.
pub(super) fn files(places: &RecentsFiles) -> Vec<PathBuf> {
    let base = places.config.join("libreoffice");
    let mut found: Vec<_> =
        files::directories(&base).into_iter().map(|version| version.join(FILE)).collect();
    found.retain(|path| path.is_file());
    found
}

pub(super) fn look(places: &RecentsFiles, survey: &mut Survey) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let names: BTreeSet<DocumentName> =
            items(&text).filter_map(|item| name_of(item, places)).collect();
        survey.items.extend(names.into_iter().map(|name| {
            RememberedDocument::in_file(
                name,
                StoreKind::Office,
                &file,
                vec!["libreoffice".into(), "soffice.bin".into()],
            )
        }));
    }
}

pub(super) fn remove(
    places: &RecentsFiles,
    disk: &dyn Disk,
    chosen: &BTreeSet<DocumentName>,
    survey: &mut Survey,
) {
    for file in files(places) {
        let Some(bytes) = survey.read(files::read(&file)) else { continue };
        // The file is XML in UTF-8; another is not LibreOffice's, and is not written.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let is_chosen =
            |item: &str| name_of(item, places).is_some_and(|name| chosen.contains(&name));
        if items(&text).any(is_chosen) {
            survey.read(files::replace(disk, &file, without(&text, is_chosen).as_bytes()));
        }
    }
}

/// Returns the lines that are items of a history.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter(|line| line.contains("<item ") && line.contains(HISTORIES))
}

/// Returns the document of an item: an item of the list has it as the name of its node, one of the order as its value.
fn name_of(item: &str, places: &RecentsFiles) -> Option<DocumentName> {
    let value = match order_of(item) {
        Some(_) => between(item, "<value>", "</value>")?,
        None => between(item, "<node oor:name=\"", "\"")?,
    };
    let value = quick_xml::escape::unescape(value).ok()?;
    DocumentName::read(value.as_bytes(), &places.home)
}

/// Returns which history an item of an order is of, and where in the item its number stands.
fn order_of(item: &str) -> Option<(&str, std::ops::Range<usize>)> {
    let path = between(item, "oor:path=\"", "\"")?;
    let node = "<node oor:name=\"";
    let start = item.find(node)? + node.len();
    let len = item[start..].find('"')?;
    path.ends_with("/OrderList").then_some((path, start..start + len))
}

fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let len = text[start..].find(behind)?;
    Some(&text[start..start + len])
}

/// Returns the text without the chosen items; what stays of an order is counted from nought again, without a gap.
fn without(text: &str, is_chosen: impl Fn(&str) -> bool) -> String {
    let is_item = |line: &str| line.contains("<item ") && line.contains(HISTORIES);
    let kept: Vec<&str> =
        text.split_inclusive('\n').filter(|line| !(is_item(line) && is_chosen(line))).collect();
    let mut numbers: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (line, (order, number)) in
        kept.iter().filter(|line| is_item(line)).filter_map(|line| Some((line, order_of(line)?)))
    {
        numbers.entry(order).or_default().extend(line[number].parse::<u32>());
    }
    numbers.values_mut().for_each(|numbers| numbers.sort_unstable());
    let mut out = String::with_capacity(text.len());
    for line in kept {
        let place = order_of(line).filter(|_| is_item(line)).and_then(|(order, number)| {
            let old = line[number.clone()].parse().ok()?;
            Some((numbers.get(order)?.binary_search(&old).ok()?, number))
        });
        match place {
            Some((new, number)) => {
                out.push_str(&line[..number.start]);
                out.push_str(&new.to_string());
                out.push_str(&line[number.end..]);
            }
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(path: &str, node: &str, inside: &str) -> String {
        format!(
            "<item oor:path=\"/{HISTORIES}Histories/org.openoffice.Office.Histories:HistoryInfo['PickList']/{path}\"><node oor:name=\"{node}\" oor:op=\"replace\">{inside}</node></item>\n"
        )
    }

    fn order(number: u32, uri: &str) -> String {
        let value = format!(
            "<prop oor:name=\"HistoryItemRef\" oor:op=\"fuse\"><value>{uri}</value></prop>"
        );
        item("OrderList", &number.to_string(), &value)
    }

    #[test]
    fn an_item_goes_and_the_order_is_counted_again() {
        let head = "<?xml version=\"1.0\"?>\n<oor:items>\n<item oor:path=\"/other\"><value>file:///a.odt</value></item>\n";
        let title = "<prop oor:name=\"Title\"><value>a</value></prop>";
        let all = [
            head,
            &item("ItemList", "file:///a.odt", title),
            &item("ItemList", "file:///b&amp;c.odt", ""),
            &order(0, "file:///a.odt"),
            &order(1, "file:///b&amp;c.odt"),
            &order(2, "file:///d.odt"),
            "</oor:items>\n",
        ]
        .concat();
        let wanted = [
            head,
            &item("ItemList", "file:///b&amp;c.odt", ""),
            &order(0, "file:///b&amp;c.odt"),
            &order(1, "file:///d.odt"),
            "</oor:items>\n",
        ]
        .concat();
        assert_eq!(without(&all, |item| item.contains("/a.odt")), wanted);
    }
}
