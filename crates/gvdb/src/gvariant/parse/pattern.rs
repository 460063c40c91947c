//! Which types a tree may have.
//!
//! A pattern is a type string with four more characters: `*` any type, `N` any number, `S` any string, and `M` before
//! what may also be wrapped in maybes.

use super::super::ParseError;
use super::error_between;
use super::number::is_double;
use super::syntax::{SyntaxKind, Tree};

/// Returns the type string of a tree that shows its type: numbers are `i` and strings `s` unless something says otherwise.
pub(super) fn resolve(tree: &Tree<'_>) -> Result<String, ParseError> {
    let mut pattern = String::new();
    of(tree, &mut pattern)?;
    if pattern.contains('*') {
        return Err(tree.error("unable to infer type"));
    }
    Ok(pattern
        .chars()
        .filter(|&c| c != 'M')
        .map(|c| match c {
            'S' => 's',
            'N' => 'i',
            other => other,
        })
        .collect())
}

/// Appends the pattern of `tree`.
fn of(tree: &Tree<'_>, out: &mut String) -> Result<(), ParseError> {
    match &tree.kind {
        SyntaxKind::Boolean(_) => out.push_str("Mb"),
        SyntaxKind::Number(token) => out.push_str(if is_double(token) { "Md" } else { "MN" }),
        SyntaxKind::String(_) => out.push_str("MS"),
        SyntaxKind::Bytestring(_) => out.push_str("May"),
        SyntaxKind::Maybe(child) => {
            out.push('m');
            match child {
                Some(child) => of(child, out)?,
                None => out.push('*'),
            }
        }
        SyntaxKind::Array(items) => {
            out.push_str("Ma");
            out.push_str(&of_all(items)?);
        }
        SyntaxKind::Tuple(members) => {
            out.push_str("M(");
            members.iter().try_for_each(|member| of(member, out))?;
            out.push(')');
        }
        SyntaxKind::Variant(_) => out.push_str("Mv"),
        SyntaxKind::Dictionary(keys, values) => {
            let Some(first) = values.first() else {
                out.push_str("Ma{**}");
                return Ok(());
            };
            // The first value speaks for all.
            of_entry(tree, keys, first, "Ma{", out)?;
        }
        SyntaxKind::Entry(entry) => of_entry(tree, &entry[..1], &entry[1], "M{", out)?,
        SyntaxKind::Declared(ty, _) => out.push_str(ty),
    }
    Ok(())
}

fn of_entry(
    tree: &Tree<'_>,
    keys: &[Tree<'_>],
    value: &Tree<'_>,
    open: &str,
    out: &mut String,
) -> Result<(), ParseError> {
    let key = of_all(keys)?;
    let key = key.strip_prefix('M').unwrap_or(&key);
    let Some(key) = key.chars().next().filter(|&key| "bynqiuxthdsogNS".contains(key)) else {
        return Err(tree.error("dictionary keys must have basic types"));
    };
    out.push_str(open);
    out.push(key);
    of(value, out)?;
    out.push('}');
    Ok(())
}

/// Returns the most general pattern that all of `items` have in common; any if there are none.
fn of_all(items: &[Tree<'_>]) -> Result<String, ParseError> {
    let Some((first, others)) = items.split_first() else { return Ok("*".to_owned()) };
    let mut common = String::new();
    of(first, &mut common)?;
    let mut pattern = String::new();
    for (index, item) in others.iter().enumerate() {
        pattern.clear();
        of(item, &mut pattern)?;
        if pattern == common {
            continue;
        }
        let Some(both) = meet(&common, &pattern) else {
            return Err(conflict(&items[..=index], item, &pattern));
        };
        common = both;
    }
    Ok(common)
}

/// Says which of `before` has nothing in common with `item`, whose pattern is `pattern`.
fn conflict(before: &[Tree<'_>], item: &Tree<'_>, pattern: &str) -> ParseError {
    const MESSAGE: &str = "unable to find a common type";
    let mut other = String::new();
    for earlier in before {
        other.clear();
        if of(earlier, &mut other).is_err() || meet(pattern, &other).is_none() {
            return error_between(&earlier.at, &item.at, MESSAGE);
        }
    }
    item.error(MESSAGE)
}

/// Returns the most general pattern that is part of both patterns.
fn meet(left: &str, right: &str) -> Option<String> {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    let mut out = Vec::with_capacity(left.len() + right.len());
    while let (Some(&l), Some(&r)) = (left.first(), right.first()) {
        if l == r {
            out.push(l);
            (left, right) = (&left[1..], &right[1..]);
        } else if !narrow(&mut left, &mut right, &mut out)
            && !narrow(&mut right, &mut left, &mut out)
        {
            return None;
        }
    }
    (left.is_empty() && right.is_empty()).then(|| String::from_utf8(out).ok()).flatten()
}

/// Lets the first wildcard of `general` stand for the start of `special`; says whether it can.
fn narrow(general: &mut &[u8], special: &mut &[u8], out: &mut Vec<u8>) -> bool {
    let (Some(&wildcard), Some(&c)) = (general.first(), special.first()) else { return false };
    match wildcard {
        b'*' if c != b')' => {
            let (whole, rest) = special.split_at(one_pattern(special));
            out.extend_from_slice(whole);
            (*general, *special) = (&general[1..], rest);
        }
        // This maybe is one of those that may be; there may be more.
        b'M' if c == b'm' => {
            out.push(c);
            *special = &special[1..];
        }
        b'M' if c != b'*' => *general = &general[1..],
        b'N' if b"ynqiuxthd".contains(&c) => {
            out.push(c);
            (*general, *special) = (&general[1..], &special[1..]);
        }
        b'S' if b"sog".contains(&c) => {
            out.push(c);
            (*general, *special) = (&general[1..], &special[1..]);
        }
        _ => return false,
    }
    true
}

/// Returns the length of the one complete pattern at the start of `text`.
fn one_pattern(text: &[u8]) -> usize {
    let mut open = 0_usize;
    for (at, &c) in text.iter().enumerate() {
        match c {
            b'a' | b'm' | b'M' if open == 0 => continue,
            b'(' | b'{' => open += 1,
            b')' | b'}' => open = open.saturating_sub(1),
            _ => (),
        }
        if open == 0 {
            return at + 1;
        }
    }
    text.len()
}
