//! Which modules of a crate use which others, and the circles in it.
//!
//! A module uses what it names by a path from the root of its crate (`crate::`), from where it stands (`super::`), or by a
//! name that a module above it has imported. Tests, comments and texts in quotes do not count.

use std::collections::{BTreeMap, BTreeSet};

/// The path of a module below the root of its crate; that of the root is empty.
type ModulePath = Vec<String>;

/// The sources of one crate.
#[derive(Default)]
pub(crate) struct CrateSources {
    files: BTreeMap<ModulePath, Vec<String>>,
}

impl CrateSources {
    /// Adds a file by its path below `src`, such as `lib.rs` or `record/ring.rs`.
    pub(crate) fn add(&mut self, path: &str, source: &str) {
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let mut module: ModulePath = path.split('/').map(str::to_owned).collect();
        let last = module.last().map(String::as_str).unwrap_or_default();
        if last == "mod" || (module.len() == 1 && matches!(last, "lib" | "main")) {
            module.pop();
        }
        self.files.insert(module, tokens(source));
    }

    /// Returns, for each two neighbours of which the first uses the second, a place where it does.
    ///
    /// Neighbours are modules of one parent; what is below a module counts as the module.
    fn uses(&self) -> BTreeMap<(ModulePath, ModulePath), String> {
        let mut scans: BTreeMap<ModulePath, Scan> = BTreeMap::new();
        let mut tests: BTreeSet<ModulePath> = BTreeSet::new();
        for (path, tokens) in &self.files {
            let mut scan = Scan::new(path.clone());
            scan.read(tokens);
            tests.extend(scan.tests.iter().cloned());
            scans.insert(path.clone(), scan);
        }
        scans.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        let mut uses = BTreeMap::new();
        for (from, scan) in &scans {
            for name in &scan.names {
                let to = resolved(&scans, name);
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if common < from.len() && common < to.len() {
                    let pair = (from[..=common].to_vec(), to[..=common].to_vec());
                    let place = format!("{} names {}", from.join("::"), name.join("::"));
                    uses.entry(pair).or_insert(place);
                }
            }
        }
        uses
    }

    /// Returns the circles of modules, each as a sentence; one way around for each group of modules that use each other.
    pub(crate) fn circles(&self) -> Vec<String> {
        let uses = self.uses();
        let mut next: BTreeMap<&ModulePath, Vec<&ModulePath>> = BTreeMap::new();
        for (from, to) in uses.keys() {
            next.entry(from).or_default().push(to);
        }
        let mut circles = Vec::new();
        let mut known: BTreeSet<&ModulePath> = BTreeSet::new();
        for start in next.keys() {
            if known.contains(*start) {
                continue;
            }
            let Some(way) = way_around(&next, start) else { continue };
            known.extend(way.iter().copied());
            let steps: Vec<&str> = (0..way.len())
                .map(|at| (way[at].clone(), way[(at + 1) % way.len()].clone()))
                .map(|pair| uses[&pair].as_str())
                .collect();
            circles.push(steps.join(", "));
        }
        circles
    }
}

/// Returns the shortest way from a module back to itself.
fn way_around<'a>(
    next: &BTreeMap<&'a ModulePath, Vec<&'a ModulePath>>,
    start: &'a ModulePath,
) -> Option<Vec<&'a ModulePath>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = *way.last()?;
            for to in next.get(last).into_iter().flatten() {
                if *to == start {
                    return Some(way);
                }
                if seen.insert(*to) {
                    longer.push([way.as_slice(), &[*to]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

/// Follows a name through modules and what they import, as far as it leads in this crate.
fn resolved(scans: &BTreeMap<ModulePath, Scan>, name: &[String]) -> ModulePath {
    let mut name = name.to_vec();
    // An import leads to another one a few times at most.
    for _ in 0..8 {
        let is_module = |length: &usize| {
            let path = &name[..*length];
            scans.keys().any(|known| known.starts_with(path))
        };
        let length = (0..=name.len()).rev().find(is_module).unwrap_or(0);
        let Some(item) = name.get(length) else { return name };
        let module = name[..length].to_vec();
        let import = scans.get(&module).and_then(|scan| scan.imports.get(item));
        let Some(import) = import else { return module };
        name = [import.as_slice(), &name[length + 1..]].concat();
    }
    name
}

/// What one file says.
struct Scan {
    file: ModulePath,
    /// Modules inside of the file, with the depth of braces in which they stand.
    inside: Vec<(String, usize)>,
    depth: usize,
    /// Every name of this crate that the file uses.
    names: BTreeSet<ModulePath>,
    /// What the file's own module has under which name.
    imports: BTreeMap<String, ModulePath>,
    /// Modules in other files that are for tests alone.
    tests: BTreeSet<ModulePath>,
}

impl Scan {
    fn new(file: ModulePath) -> Scan {
        Scan {
            file,
            inside: Vec::new(),
            depth: 0,
            names: BTreeSet::new(),
            imports: BTreeMap::new(),
            tests: BTreeSet::new(),
        }
    }

    /// The module of the code that is being read.
    fn here(&self) -> ModulePath {
        self.file.iter().cloned().chain(self.inside.iter().map(|(name, _)| name.clone())).collect()
    }

    fn read(&mut self, tokens: &[String]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let word = |more: usize| tokens.get(at + more).map(String::as_str).unwrap_or_default();
            match token.as_str() {
                "#" if is_for_tests(&tokens[at..]) => {
                    let end = at + item_end(&tokens[at..]);
                    self.note_test(&tokens[at..end]);
                    at = end;
                    continue;
                }
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inside.last().is_some_and(|(_, depth)| *depth == self.depth) {
                        self.inside.pop();
                    }
                }
                "mod" if word(2) == "{" => self.inside.push((word(1).to_owned(), self.depth)),
                "use" => {
                    let mut found = Vec::new();
                    let here = self.here();
                    at = tree(tokens, at + 1, &here, &mut found);
                    let is_ours = self.inside.is_empty() && self.depth == 0;
                    for (name, path) in found {
                        if is_ours && path != self.file {
                            self.imports.insert(name, path.clone());
                        }
                        self.names.insert(path);
                    }
                    continue;
                }
                "crate" | "super" if word(1) == "::" => {
                    let (mut path, here) = (Vec::new(), self.here());
                    at = plain(tokens, at, &here, &mut path);
                    self.names.insert(path);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Takes note of a module for tests that is in another file.
    fn note_test(&mut self, item: &[String]) {
        let declared = item.windows(3).find(|words| words[0] == "mod" && words[2] == ";");
        if let Some(words) = declared {
            let mut path = self.here();
            path.push(words[1].clone());
            self.tests.insert(path);
        }
    }
}

/// Says whether an attribute for tests alone begins here.
fn is_for_tests(tokens: &[String]) -> bool {
    let end = tokens.iter().position(|token| token == "]").unwrap_or(0);
    let words: Vec<&str> = tokens[..end].iter().map(String::as_str).collect();
    words.starts_with(&["#", "[", "cfg"]) && words.contains(&"test") && !words.contains(&"not")
}

/// Returns how many tokens the attributes and the item behind them take.
fn item_end(tokens: &[String]) -> usize {
    const ITEMS: [&str; 14] = [
        "async", "const", "enum", "extern", "fn", "impl", "let", "mod", "static", "struct",
        "trait", "type", "unsafe", "use",
    ];
    let (mut at, mut depth, mut is_item) = (0, 0_usize, false);
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "#" if depth == 0 => {
                at += tokens[at..].iter().position(|t| t == "]").unwrap_or(tokens.len());
            }
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            word => is_item |= ITEMS.contains(&word),
        }
        at += 1;
    }
    at
}

/// Reads the tree of a `use` and returns where it ends; adds each name with the path that it stands for.
fn tree(
    tokens: &[String],
    mut at: usize,
    base: &[String],
    found: &mut Vec<(String, ModulePath)>,
) -> usize {
    let mut path: Option<ModulePath> = None;
    let is_begin = |path: &Option<ModulePath>| path.is_none();
    loop {
        let word = tokens.get(at).map(String::as_str).unwrap_or_default();
        match word {
            "crate" if is_begin(&path) => path = Some(Vec::new()),
            "self" => path = Some(path.unwrap_or_else(|| base.to_vec())),
            "super" => {
                let mut above = path.unwrap_or_else(|| base.to_vec());
                above.pop();
                path = Some(above);
            }
            "{" => {
                let base = path.clone().unwrap_or_else(|| base.to_vec());
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, &base, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                found.extend(path.map(|path| (name, path)));
                return at + 2;
            }
            "::" => {}
            "*" => {
                found.extend(path.map(|path| ("*".to_owned(), path)));
                return at + 1;
            }
            word if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                // A name without a prefix is a child of this module, or another crate; neither is a neighbour.
                let mut longer = path.unwrap_or_else(|| base.to_vec());
                longer.push(word.to_owned());
                path = Some(longer);
            }
            _ => {
                let name = path.as_ref().and_then(|path| path.last().cloned());
                found.extend(path.and_then(|path| Some((name?, path))));
                return at;
            }
        }
        at += 1;
    }
}

/// Reads a path in code that begins with `crate` or `super`, and returns where it ends.
fn plain(tokens: &[String], mut at: usize, here: &[String], path: &mut ModulePath) -> usize {
    *path = if tokens[at] == "crate" { Vec::new() } else { here.to_vec() };
    loop {
        match tokens.get(at).map(String::as_str).unwrap_or_default() {
            "crate" => {}
            "super" => drop(path.pop()),
            word if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(word.to_owned());
            }
            _ => return at,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            return at;
        }
        at += 1;
    }
}

/// Splits Rust into words and marks, without comments, texts and lifetimes.
fn tokens(source: &str) -> Vec<String> {
    let letters: Vec<char> = source.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let letter = |at: usize| letters.get(at).copied().unwrap_or('\0');
    while at < letters.len() {
        match letter(at) {
            '/' if letter(at + 1) == '/' => {
                while at < letters.len() && letter(at) != '\n' {
                    at += 1;
                }
            }
            '/' if letter(at + 1) == '*' => at = comment_end(&letters, at),
            '"' => at = text_end(&letters, at),
            '\'' if letter(at + 1) == '\\' => {
                at += 3;
                while at < letters.len() && letter(at) != '\'' {
                    at += 1;
                }
                at += 1;
            }
            '\'' if letter(at + 2) == '\'' => at += 3,
            '\'' => at += 1,
            first if is_word(first) => {
                let begin = at;
                while is_word(letter(at)) {
                    at += 1;
                }
                let word: String = letters[begin..at].iter().collect();
                let is_prefix = matches!(word.as_str(), "r" | "b" | "c" | "br" | "cr");
                if is_prefix && word.ends_with('r') && matches!(letter(at), '"' | '#') {
                    at = raw_text_end(&letters, at);
                } else if !(is_prefix && letter(at) == '"') {
                    tokens.push(word);
                }
            }
            ':' if letter(at + 1) == ':' => {
                tokens.push("::".to_owned());
                at += 2;
            }
            space if space.is_whitespace() => at += 1,
            mark => {
                tokens.push(mark.to_string());
                at += 1;
            }
        }
    }
    tokens
}

fn comment_end(letters: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < letters.len() {
        match (letters[at], letters.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn text_end(letters: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < letters.len() && letters[at] != '"' {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the end of a raw text, or of the mark of a raw word.
fn raw_text_end(letters: &[char], mut at: usize) -> usize {
    let marks = letters[at..].iter().take_while(|letter| **letter == '#').count();
    at += marks;
    if letters.get(at) != Some(&'"') {
        return at;
    }
    at += 1;
    while at < letters.len() {
        let is_end = letters[at] == '"'
            && letters[at + 1..].iter().take_while(|letter| **letter == '#').count() >= marks;
        if is_end {
            return at + 1 + marks;
        }
        at += 1;
    }
    at
}

#[test]
fn modules_that_use_each_other_are_noticed() {
    let mut planted = CrateSources::default();
    planted.add("lib.rs", "mod a; mod b; mod c; mod d;\npub use c::Thing;\n");
    planted.add("a.rs", "use super::b::{self, Other};\nfn f(b: Other) { b::g(b) }\n");
    planted.add("b/mod.rs", "mod deep;\n#[cfg(test)]\nmod tests { use crate::c; }\n");
    planted.add("b/deep.rs", "fn g() -> crate::Thing { r#\"crate::a\"#; '\"'; super::h() }\n");
    planted.add("c.rs", "// crate::b\nmod inner { fn h() { super::super::a::f() } }\n");
    planted.add("d.rs", "use crate::{a, b, c};\n#[cfg(test)]\nuse crate::d;\n");
    let circles = planted.circles();
    assert_eq!(
        circles,
        ["a names b, b::deep names Thing, c names a::f".to_owned()],
        "a uses b, b uses what c has, c uses a; tests and d, which nobody uses, are in no circle"
    );
}

#[test]
fn modules_below_a_module_are_neighbours_too() {
    let mut planted = CrateSources::default();
    planted.add("lib.rs", "mod a;");
    planted.add("a/mod.rs", "mod x; mod y; pub use x::X;");
    planted.add("a/x.rs", "use super::y::Y;");
    planted.add("a/y.rs", "fn f(x: super::X) {}");
    assert_eq!(planted.circles(), ["a::x names a::y::Y, a::y names a::X".to_owned()]);
    planted.add("a/y.rs", "");
    assert_eq!(planted.circles(), Vec::<String>::new());
}
