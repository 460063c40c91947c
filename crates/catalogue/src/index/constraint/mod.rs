//! The constraint language of KDE's traders: `'text/plain' in MimeTypes and (not exist Hidden or Hidden == false)`.
//!
//! From the loosest to the tightest: `or` · `and` · `not` · `== != =~ !~ < <= > >=` · `~ ~~ subseq ~subseq in ~in subin ~subin` · `+ -` · `* /` · `exist max min`, values.
//! A value that is not there makes what it is in fail, and what failed does not match, also under `not`; `exist` asks first.

mod evaluate;
mod token;

pub use evaluate::{ConstraintFields, Extremes};

use token::{Token, tokens};

/// How deep parentheses may be nested.
const DEPTH: usize = 64;

/// The most words and signs: operators in a row are nested as well.
const TOKENS: usize = 2000;

/// A constraint that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    root: Node,
}

/// Why a text is no constraint.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot parse the constraint at character {at}: {what}")]
pub struct ConstraintError {
    /// Where, counted in characters from 1.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How a text is looked for in another text or in a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Search {
    /// `~`: part of a text.
    Part,
    /// `subseq`: its letters in this order, others in between.
    Sequence,
    /// `in`: one of a list.
    Member,
    /// `subin`: part of one of a list.
    PartOfMember,
}

/// Whether capital and small letters are the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Case {
    Matters,
    Folded,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Or(Box<[Node; 2]>),
    And(Box<[Node; 2]>),
    Not(Box<Node>),
    Compare(Comparison, Case, Box<[Node; 2]>),
    Search(Search, Case, Box<[Node; 2]>),
    Calculate(Arithmetic, Box<[Node; 2]>),
    Exists(String),
    /// How far towards the greatest of all values, from -1 to 1; with `false` towards the least.
    Greatest(String),
    Least(String),
    Field(String),
    Text(String),
    Whole(i64),
    Fraction(f64),
    Truth(bool),
}

impl Constraint {
    /// Reads a constraint; an empty one matches everything.
    ///
    /// # Errors
    ///
    /// Where the text stops being one, and what is wrong there.
    pub fn parse(text: &str) -> Result<Constraint, ConstraintError> {
        let tokens = tokens(text)?;
        let end = text.chars().count() + 1;
        if tokens.len() > TOKENS {
            return Err(ConstraintError { at: end, what: format!("more than {TOKENS} words") });
        }
        if tokens.is_empty() {
            return Ok(Constraint { root: Node::Truth(true) });
        }
        let mut parser = Parser { tokens: &tokens, at: 0, end };
        let root = parser.or(DEPTH)?;
        match parser.peek() {
            None => Ok(Constraint { root }),
            Some(_) => Err(parser.error("expected an operator")),
        }
    }
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    end: usize,
}

fn pair(left: Node, right: Node) -> Box<[Node; 2]> {
    Box::new([left, right])
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let is_it = self.peek() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn word(&mut self, wanted: &str) -> bool {
        let is_it =
            matches!(self.peek(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(wanted));
        self.at += usize::from(is_it);
        is_it
    }

    fn error(&self, what: &str) -> ConstraintError {
        let at = self.tokens.get(self.at).map_or(self.end, |(at, _)| *at);
        ConstraintError { at, what: what.to_owned() }
    }

    fn or(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let mut left = self.and(depth)?;
        while self.word("or") {
            left = Node::Or(pair(left, self.and(depth)?));
        }
        Ok(left)
    }

    fn and(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let mut left = self.not(depth)?;
        while self.word("and") {
            left = Node::And(pair(left, self.not(depth)?));
        }
        Ok(left)
    }

    fn not(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        if self.word("not") {
            let depth = depth.checked_sub(1).ok_or_else(|| self.error("nested too deep"))?;
            return Ok(Node::Not(Box::new(self.not(depth)?)));
        }
        self.comparison(depth)
    }

    fn comparison(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let left = self.search(depth)?;
        let known = [
            ("==", Comparison::Equal, Case::Matters),
            ("!=", Comparison::NotEqual, Case::Matters),
            ("=~", Comparison::Equal, Case::Folded),
            ("!~", Comparison::NotEqual, Case::Folded),
            ("<", Comparison::Less, Case::Matters),
            ("<=", Comparison::LessOrEqual, Case::Matters),
            (">", Comparison::Greater, Case::Matters),
            (">=", Comparison::GreaterOrEqual, Case::Matters),
        ];
        for (sign, comparison, case) in known {
            if self.take(&Token::Sign(sign)) {
                return Ok(Node::Compare(comparison, case, pair(left, self.search(depth)?)));
            }
        }
        Ok(left)
    }

    fn search(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let left = self.sum(depth)?;
        let signs = [
            ("~", Search::Part, Case::Matters),
            ("~~", Search::Part, Case::Folded),
            ("~subseq", Search::Sequence, Case::Folded),
            ("~in", Search::Member, Case::Folded),
            ("~subin", Search::PartOfMember, Case::Folded),
        ];
        for (sign, search, case) in signs {
            if self.take(&Token::Sign(sign)) {
                return Ok(Node::Search(search, case, pair(left, self.sum(depth)?)));
            }
        }
        let words =
            [("subseq", Search::Sequence), ("in", Search::Member), ("subin", Search::PartOfMember)];
        for (word, search) in words {
            if self.word(word) {
                return Ok(Node::Search(search, Case::Matters, pair(left, self.sum(depth)?)));
            }
        }
        Ok(left)
    }

    fn sum(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let mut left = self.product(depth)?;
        loop {
            let arithmetic = if self.take(&Token::Sign("+")) {
                Arithmetic::Add
            } else if self.take(&Token::Sign("-")) {
                Arithmetic::Subtract
            } else {
                return Ok(left);
            };
            left = Node::Calculate(arithmetic, pair(left, self.product(depth)?));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        let mut left = self.value(depth)?;
        loop {
            let arithmetic = if self.take(&Token::Sign("*")) {
                Arithmetic::Multiply
            } else if self.take(&Token::Sign("/")) {
                Arithmetic::Divide
            } else {
                return Ok(left);
            };
            left = Node::Calculate(arithmetic, pair(left, self.value(depth)?));
        }
    }

    fn field(&mut self) -> Result<String, ConstraintError> {
        let name = match self.peek() {
            Some(Token::Word(name) | Token::Bracketed(name)) => name.clone(),
            _ => return Err(self.error("expected the name of a property")),
        };
        self.at += 1;
        Ok(name)
    }

    fn value(&mut self, depth: usize) -> Result<Node, ConstraintError> {
        if self.take(&Token::Sign("(")) {
            let depth = depth.checked_sub(1).ok_or_else(|| self.error("nested too deep"))?;
            let inside = self.or(depth)?;
            return if self.take(&Token::Sign(")")) {
                Ok(inside)
            } else {
                Err(self.error("expected )"))
            };
        }
        if self.take(&Token::Sign("-")) {
            let depth = depth.checked_sub(1).ok_or_else(|| self.error("nested too deep"))?;
            return Ok(Node::Calculate(
                Arithmetic::Subtract,
                pair(Node::Whole(0), self.value(depth)?),
            ));
        }
        if self.word("exist") {
            return self.field().map(Node::Exists);
        }
        if self.word("max") {
            return self.field().map(Node::Greatest);
        }
        if self.word("min") {
            return self.field().map(Node::Least);
        }
        let node = match self.peek() {
            Some(Token::Text(text)) => Node::Text(text.clone()),
            Some(Token::Whole(number)) => Node::Whole(*number),
            Some(Token::Fraction(number)) => Node::Fraction(*number),
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("true") => Node::Truth(true),
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("false") => Node::Truth(false),
            Some(Token::Word(name) | Token::Bracketed(name)) => Node::Field(name.clone()),
            _ => return Err(self.error("expected a value")),
        };
        self.at += 1;
        Ok(node)
    }
}
