//! Whether a record matches a constraint: nothing is decoded but the members that it names.

use std::cmp::Ordering;

use super::super::record::{IndexRecord, MemberValue, TextList};
use super::{Arithmetic, Case, Comparison, Constraint, Node, Search};

/// What a constraint asks for values.
pub trait ConstraintFields {
    /// Returns a value; none if there is none of this name.
    fn field(&self, name: &str) -> Option<MemberValue<'_>>;
}

impl ConstraintFields for IndexRecord<'_> {
    fn field(&self, name: &str) -> Option<MemberValue<'_>> {
        self.get(name)
    }
}

/// The least and the greatest value of a property among all candidates, for `max` and `min`.
pub type Extremes<'a> = &'a dyn Fn(&str) -> Option<(f64, f64)>;

/// What a part of a constraint comes to.
#[derive(Clone, Debug, PartialEq)]
enum Evaluated<'a> {
    Text(&'a str),
    List(TextList<'a>),
    Truth(bool),
    Whole(i64),
    Fraction(f64),
}

impl Evaluated<'_> {
    fn number(&self) -> Option<f64> {
        match self {
            Evaluated::Whole(number) => Some(*number as f64),
            Evaluated::Fraction(number) => Some(*number),
            _ => None,
        }
    }
}

impl Constraint {
    /// Returns whether `fields` match.
    #[must_use]
    pub fn matches(&self, fields: &dyn ConstraintFields, extremes: Extremes<'_>) -> bool {
        value(&self.root, fields, extremes) == Some(Evaluated::Truth(true))
    }

    /// Returns the records that match, with the least and greatest values of all `records`.
    #[must_use]
    pub fn select<'a>(&self, records: Vec<IndexRecord<'a>>) -> Vec<IndexRecord<'a>> {
        let extremes: Vec<(&str, Option<(f64, f64)>)> =
            self.extremes_of().into_iter().map(|name| (name, extremes(&records, name))).collect();
        let of = |name: &str| {
            extremes.iter().find(|(known, _)| *known == name).and_then(|(_, found)| *found)
        };
        let matches = |record: &IndexRecord<'a>| self.matches(record as &dyn ConstraintFields, &of);
        records.into_iter().filter(matches).collect()
    }

    /// Returns the properties whose least and greatest values the constraint needs.
    #[must_use]
    pub fn extremes_of(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut nodes = vec![&self.root];
        while let Some(node) = nodes.pop() {
            match node {
                Node::Greatest(name) | Node::Least(name) => names.push(&**name),
                Node::Or(both)
                | Node::And(both)
                | Node::Compare(_, _, both)
                | Node::Search(_, _, both)
                | Node::Calculate(_, both) => {
                    nodes.extend(both.iter());
                }
                Node::Not(inside) => nodes.push(inside),
                _ => {}
            }
        }
        names
    }
}

/// Returns what a node comes to; none if it fails.
fn value<'a>(
    node: &'a Node,
    fields: &'a dyn ConstraintFields,
    extremes: Extremes<'_>,
) -> Option<Evaluated<'a>> {
    let of = |node: &'a Node| value(node, fields, extremes);
    let truth =
        |node: &'a Node| if let Evaluated::Truth(truth) = of(node)? { Some(truth) } else { None };
    Some(match node {
        // The second is not asked when the first decides, so that `not exist A or A == 1` works.
        Node::Or(both) => Evaluated::Truth(truth(&both[0])? || truth(&both[1])?),
        Node::And(both) => Evaluated::Truth(truth(&both[0])? && truth(&both[1])?),
        Node::Not(inside) => Evaluated::Truth(!truth(inside)?),
        Node::Compare(comparison, case, both) => {
            Evaluated::Truth(compare(*comparison, *case, &of(&both[0])?, &of(&both[1])?)?)
        }
        Node::Search(search, case, both) => {
            Evaluated::Truth(find(*search, *case, &of(&both[0])?, &of(&both[1])?)?)
        }
        Node::Calculate(arithmetic, both) => {
            calculate(*arithmetic, &of(&both[0])?, &of(&both[1])?)?
        }
        Node::Exists(name) => Evaluated::Truth(fields.field(name).is_some()),
        Node::Greatest(name) => Evaluated::Fraction(share(name, fields, extremes)?),
        Node::Least(name) => Evaluated::Fraction(-share(name, fields, extremes)?),
        Node::Field(name) => match fields.field(name)? {
            MemberValue::Text(text) => Evaluated::Text(text),
            MemberValue::List(list) => Evaluated::List(list),
            MemberValue::Truth(truth) => Evaluated::Truth(truth),
            MemberValue::Whole(number) => Evaluated::Whole(number),
            MemberValue::Fraction(number) => Evaluated::Fraction(number),
            MemberValue::Bytes(_) => return None,
        },
        Node::Text(text) => Evaluated::Text(text),
        Node::Whole(number) => Evaluated::Whole(*number),
        Node::Fraction(number) => Evaluated::Fraction(*number),
        Node::Truth(truth) => Evaluated::Truth(*truth),
    })
}

/// Returns where a value is between the least (-1) and the greatest (1) of all.
fn share(name: &str, fields: &dyn ConstraintFields, extremes: Extremes<'_>) -> Option<f64> {
    let number = match fields.field(name)? {
        MemberValue::Whole(number) => number as f64,
        MemberValue::Fraction(number) => number,
        _ => return None,
    };
    let (least, greatest) = extremes(name)?;
    // Where all are the same this is no number, for KDE as for us: only `!=` is true of it.
    Some(2.0 * (number - least) / (greatest - least) - 1.0)
}

fn compare(
    comparison: Comparison,
    case: Case,
    left: &Evaluated<'_>,
    right: &Evaluated<'_>,
) -> Option<bool> {
    let (order, has_order) = match (left, right) {
        (Evaluated::Text(a), Evaluated::Text(b)) if case == Case::Folded => {
            (Some(a.to_lowercase().cmp(&b.to_lowercase())), false)
        }
        (Evaluated::Text(a), Evaluated::Text(b)) => (Some(a.cmp(b)), false),
        (Evaluated::Truth(a), Evaluated::Truth(b)) => (Some(a.cmp(b)), false),
        (Evaluated::Whole(a), Evaluated::Whole(b)) => (Some(a.cmp(b)), true),
        (a, b) => (a.number()?.partial_cmp(&b.number()?), true),
    };
    match comparison {
        Comparison::Equal => Some(order == Some(Ordering::Equal)),
        Comparison::NotEqual => Some(order != Some(Ordering::Equal)),
        // Only numbers are greater and less: what is said of texts must not depend on a language.
        _ if !has_order => None,
        Comparison::Less => Some(order == Some(Ordering::Less)),
        Comparison::LessOrEqual => Some(order.is_some_and(Ordering::is_le)),
        Comparison::Greater => Some(order == Some(Ordering::Greater)),
        Comparison::GreaterOrEqual => Some(order.is_some_and(Ordering::is_ge)),
    }
}

fn find(search: Search, case: Case, needle: &Evaluated<'_>, place: &Evaluated<'_>) -> Option<bool> {
    let fold =
        |text: &str| if case == Case::Folded { text.to_lowercase() } else { text.to_owned() };
    match (search, needle, place) {
        (Search::Part, Evaluated::Text(part), Evaluated::Text(whole)) => {
            Some(fold(whole).contains(&fold(part)))
        }
        (Search::Sequence, Evaluated::Text(part), Evaluated::Text(whole)) => {
            Some(is_sequence(&fold(part), &fold(whole)))
        }
        (Search::Member, Evaluated::Text(one), Evaluated::List(list)) => {
            let one = fold(one);
            Some(list.clone().any(|item| fold(item) == one))
        }
        (Search::PartOfMember, Evaluated::Text(part), Evaluated::List(list)) => {
            let part = fold(part);
            Some(list.clone().any(|item| fold(item).contains(&part)))
        }
        _ => None,
    }
}

/// Returns whether the letters of `part` are in `whole` in this order.
fn is_sequence(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    // An empty one is in nothing, as KDE has it.
    !part.is_empty() && part.chars().all(|wanted| rest.any(|c| c == wanted))
}

fn calculate<'a>(
    arithmetic: Arithmetic,
    left: &Evaluated<'_>,
    right: &Evaluated<'_>,
) -> Option<Evaluated<'a>> {
    if let (Evaluated::Whole(a), Evaluated::Whole(b)) = (left, right) {
        return match arithmetic {
            Arithmetic::Add => a.checked_add(*b),
            Arithmetic::Subtract => a.checked_sub(*b),
            Arithmetic::Multiply => a.checked_mul(*b),
            Arithmetic::Divide => a.checked_div(*b),
        }
        .map(Evaluated::Whole);
    }
    let (a, b) = (left.number()?, right.number()?);
    Some(Evaluated::Fraction(match arithmetic {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
    }))
}

/// Returns the least and the greatest value of a property.
fn extremes(records: &[IndexRecord<'_>], name: &str) -> Option<(f64, f64)> {
    let numbers = records.iter().filter_map(|record| match record.get(name)? {
        MemberValue::Whole(number) => Some(number as f64),
        MemberValue::Fraction(number) => Some(number),
        _ => None,
    });
    numbers.fold(None, |found, number| {
        let (least, greatest) = found.unwrap_or((number, number));
        Some((number.min(least), number.max(greatest)))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::identity::Identity;
    use super::super::super::record::RecordBuilder;
    use super::*;

    fn matches(text: &str) -> bool {
        let mut record = RecordBuilder::new(Path::new("/x"), Identity::ABSENT);
        record.text("Name", "Konqueror");
        record.text("X-KDE-Library", "libkonq");
        record.list("MimeTypes", ["text/html", "inode/Directory"].into_iter());
        record.truth("Hidden", false);
        record.whole("Rank", 7);
        record.fraction("Weight", 2.5);
        let bytes = record.build();
        let constraint = Constraint::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        constraint.matches(&IndexRecord(&bytes), &|name| match name {
            "Rank" => Some((5.0, 9.0)),
            "Weight" => Some((2.5, 2.5)),
            _ => None,
        })
    }

    #[test]
    fn every_operator_means_what_the_trader_says() {
        let yes = [
            "",
            "Name == 'Konqueror'",
            "Name != 'Dolphin'",
            "Name =~ 'konqueror'",
            "Name !~ 'dolphin'",
            "'onq' ~ Name",
            "'ONQ' ~~ Name",
            "'kqr' subseq 'konqueror'",
            "'KQR' ~subseq Name",
            "'text/html' in MimeTypes",
            "'INODE/directory' ~in MimeTypes",
            "'html' subin MimeTypes",
            "'HTML' ~subin MimeTypes",
            "exist [X-KDE-Library] and [X-KDE-Library] == 'libkonq'",
            "not exist Nothing or Nothing == 'x'",
            "Rank + 3 == 10 and Rank * 2 > 13 and Rank / 2 == 3 and Rank - 8 == -1",
            "Weight >= 2.5 and Weight < 3 and Rank <= 7.0",
            "max Rank == 0.0 and min Rank == 0.0",
            "max Weight != 1 and not max Weight == 1",
            "Hidden == FALSE and not Hidden",
            "(Rank > 100 or TRUE) and 'it\\'s' == 'it\\'s'",
        ];
        yes.iter().for_each(|text| assert!(matches(text), "{text}"));
        let no = [
            "Name < 'Z'",
            "Nothing == 'x'",
            "not (Nothing == 'x')",
            "Name == 7",
            "'x' in Name",
            "Hidden < TRUE",
            "'onq' subseq ''",
            "'' subseq Name",
            "Rank / 0 == 1",
            "Name",
            "'html' in MimeTypes",
        ];
        no.iter().for_each(|text| assert!(!matches(text), "{text}"));
    }

    #[test]
    fn what_is_no_constraint_is_refused_where_it_ends() {
        let wrong = [
            ("Name ==", 8),
            ("'x", 1),
            ("(Name == 'x'", 13),
            ("Name 'x'", 6),
            ("Näme == $", 9),
            ("[X", 1),
            ("exist 'x'", 7),
            ("1.2.3", 1),
        ];
        for (text, at) in wrong {
            assert_eq!(Constraint::parse(text).unwrap_err().at, at, "{text}");
        }
        let deep = "(".repeat(10_000);
        assert!(Constraint::parse(&deep).is_err());
        assert!(Constraint::parse(&format!("{} TRUE", "not ".repeat(10_000))).is_err());
    }
}
