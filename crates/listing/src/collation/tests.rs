//! One order by two ways: ours and ICU's agree, name by name and byte by byte.

use proptest::prelude::*;

use super::*;

const LOCALES: [&str; 34] = [
    "en",
    "de",
    "sv",
    "cs",
    "da",
    "nb",
    "hu",
    "hr",
    "sk",
    "cy",
    "sq",
    "mt",
    "lt",
    "lv",
    "et",
    "pl",
    "tr",
    "az",
    "vi",
    "es-u-co-trad",
    "de-u-co-phonebk",
    "fr-CA",
    "th",
    "ja",
    "zh",
    "ko",
    "ru",
    "el",
    "ro",
    "fi",
    "is",
    "fil",
    "haw",
    "und",
];

/// ICU alone, ties by bytes: what the order is to be.
fn icu(locale: &str) -> CollatorBorrowed<'static> {
    let mut preferences = CollatorPreferences::from(&Locale::try_from_str(locale).unwrap());
    preferences.numeric_ordering = Some(CollationNumericOrdering::True);
    let mut options = CollatorOptions::default();
    options.strength = Some(Strength::Tertiary);
    Collator::try_new(preferences, options).unwrap()
}

fn letters(locale: &str) -> CollatorBorrowed<'static> {
    let mut preferences = CollatorPreferences::from(&Locale::try_from_str(locale).unwrap());
    preferences.numeric_ordering = Some(CollationNumericOrdering::True);
    let mut options = CollatorOptions::default();
    options.strength = Some(Strength::Primary);
    Collator::try_new(preferences, options).unwrap()
}

/// Names that people and programs make, and bytes that nobody means.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        8 => proptest::sample::select(vec![
            "a", "A", "b", "ch", "Ch", "cH", "h", "c", "cs", "ccs", "dz", "dzs", "ll", "l", "ny", "nny", "gy", "aa", "AA", "aA", "ie", "z", "v", "w", "y",
            "i", "ss", "th", "lj", "nj", "ng", "-", "_", ".", " ", "'", "#", "~", "+", "(", "0", "00", "1", "01", "2", "9", "10", "73", "74", "75",
            "10233", "10234", "1042489", "1042490", "9999999", "10000000", "20240131", "000123", "1200", "12000000", "IMG_", ".txt", "file",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        2 => proptest::sample::select(vec![
            "é", "E\u{301}", "e\u{301}", "\u{301}", "ä", "ö", "ü", "å", "Å", "ß", "æ", "ø", "č", "š", "ž", "ł", "ı", "İ", "ж", "λ", "中", "あ", "ー", "한", "٣", "²", "½",
            "\u{200d}", "\u{1f600}", "\u{7f}", "\u{1}", "\t", "\u{308}", "·", "ﬁ",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(1..=255_u8, 1..3),
        1 => "[0-9]{1,30}".prop_map(String::into_bytes),
        1 => "[ -~]{1,4}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(3000), failure_persistence: None, ..default }
}

/// Each locale's order and ICU's, made once.
fn orders() -> &'static [(Collation, CollatorBorrowed<'static>, CollatorBorrowed<'static>)] {
    static ORDERS: std::sync::OnceLock<
        Vec<(Collation, CollatorBorrowed<'static>, CollatorBorrowed<'static>)>,
    > = std::sync::OnceLock::new();
    ORDERS.get_or_init(|| {
        LOCALES
            .iter()
            .map(|locale| (Collation::new(locale, Digits::ByValue), icu(locale), letters(locale)))
            .collect()
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn names_are_in_the_order_of_icu(a in name(), b in name(), shared in name(), locale in 0..LOCALES.len()) {
        let (ours, icu, _) = &orders()[locale];
        for (a, b) in [(a.clone(), b.clone()), ([&*shared, &a].concat(), [&*shared, &b].concat())] {
            let theirs = icu.compare_utf8(&a, &b).then_with(|| a.cmp(&b));
            prop_assert_eq!(ours.compare(&a, &b), theirs, "{} in {}", String::from_utf8_lossy(&a), LOCALES[locale]);
            prop_assert_eq!(ours.compare(&b, &a), theirs.reverse());
        }
    }

    #[test]
    fn a_code_is_the_start_of_icus_key(name in name(), room in 0..40_usize, locale in 0..LOCALES.len()) {
        let (ours, _, letters) = &orders()[locale];
        let mut whole = Vec::new();
        let Ok(()) = letters.write_sort_key_utf8_to(&name, &mut whole);
        let mut code = vec![0; room];
        let len = ours.code(&name, &mut code);
        prop_assert_eq!(&code[..len], &whole[..room.min(whole.len())], "{:?} in {}", String::from_utf8_lossy(&name), LOCALES[locale]);
        prop_assert!(!code[..len].contains(&0));
    }

    #[test]
    fn three_names_are_in_one_order(mut names in proptest::collection::vec(name(), 3), locale in 0..LOCALES.len()) {
        let (ours, ..) = &orders()[locale];
        names.sort_by(|a, b| ours.compare(a, b));
        for (first, second) in [(0, 1), (1, 2), (0, 2)] {
            prop_assert!(ours.compare(&names[first], &names[second]).is_le());
        }
        prop_assert_eq!(ours.compare(&names[0], &names[1]).is_eq(), names[0] == names[1]);
    }
}

/// The names in the order of a locale.
fn sorted<'a>(locale: &str, names: &[&'a str]) -> Vec<&'a str> {
    let collation = Collation::new(locale, Digits::ByValue);
    let mut names = names.to_vec();
    names.sort_by(|a, b| collation.compare(a.as_bytes(), b.as_bytes()));
    names
}

#[test]
fn languages_have_their_own_orders() {
    let names = [
        "Zebra", "ähnlich", "apfel", "Öl", "ost", "chata", "cihla", "hora", "file10", "file9",
        "file09",
    ];
    assert_eq!(
        sorted("de_DE.UTF-8", &names),
        [
            "ähnlich", "apfel", "chata", "cihla", "file09", "file9", "file10", "hora", "Öl", "ost",
            "Zebra"
        ]
    );
    assert_eq!(
        sorted("sv_SE", &names),
        [
            "apfel", "chata", "cihla", "file09", "file9", "file10", "hora", "ost", "Zebra",
            "ähnlich", "Öl"
        ]
    );
    assert_eq!(
        sorted("cs_CZ.UTF-8", &names)[..8],
        ["ähnlich", "apfel", "cihla", "file09", "file9", "file10", "hora", "chata"]
    );
    assert_eq!(
        sorted("C.UTF-8", &names),
        [
            "Zebra", "apfel", "chata", "cihla", "file09", "file10", "file9", "hora", "ost", "Öl",
            "ähnlich"
        ]
    );
}

#[test]
fn digits_may_be_text() {
    let collation = Collation::new("en_US", Digits::AsText);
    assert!(collation.compare(b"page 10", b"page 9").is_lt());
    assert!(collation.compare(b"page 1", b"page 10").is_lt());
}

#[test]
fn bytes_that_are_no_text_come_after_letters() {
    let collation = Collation::new("en", Digits::ByValue);
    assert!(collation.compare(b"z\xff", b"zz").is_gt());
    assert!(collation.compare(b"\xff", "中".as_bytes()).is_gt());
    assert!(collation.compare(b"\xff", b"\xfe").is_gt(), "different bytes are different names");
}

#[test]
fn an_unknown_locale_has_the_common_order() {
    assert_eq!(sorted("qq_nowhere!", &["b", "A", "a"]), ["a", "A", "b"]);
}

#[test]
fn ascii_names_do_not_need_icu_in_most_languages() {
    for locale in ["en", "de", "fr", "sv", "pl", "ru"] {
        let collation = Collation::new(locale, Digits::ByValue);
        let Rule::Language(language) = &collation.rule else { panic!("{locale} is a language") };
        let names: [&[u8]; 3] =
            [b"IMG_20240131_123456.jpg", b"libfoo-2.0.so.1", b"Makefile.am (copy) ~"];
        for name in names {
            assert!(language.plain.code(name, &mut [0; 64]).is_some(), "{locale}");
        }
    }
    let czech = Collation::new("cs", Digits::ByValue);
    let Rule::Language(language) = &czech.rule else { panic!("Czech is a language") };
    assert!(language.plain.code(b"cesta", &mut [0; 64]).is_some());
    assert!(language.plain.code(b"chata", &mut [0; 64]).is_none(), "ch is a letter there");
}
