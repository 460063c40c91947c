//! Constraints: what KDE's trader keeps of its offers, ours keeps.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use unjank_catalogue::apps::place::ApplicationDirectories;
use unjank_catalogue::index::Index;
use unjank_catalogue::index::build::{CheckDepth, build};
use unjank_catalogue::index::constraint::{Constraint, ConstraintFields};
use unjank_catalogue::index::record::{IndexRecord, MemberValue, TextList};
use unjank_catalogue::index::sources::IndexSources;

use super::{compiled, has, skip};

/// Where KDE Frameworks 5 installs what `pkg-config` does not know.
const KDE: [&str; 7] = [
    "-I/usr/include/KF5/KService",
    "-I/usr/include/KF5/KCoreAddons",
    "-I/usr/include/KF5/KConfigCore",
    "-I/usr/include/KF5",
    "-lKF5Service",
    "-lKF5CoreAddons",
    "-lKF5ConfigCore",
];

/// A service type of ours, with a property of each kind.
const TYPE: &str = "Unjank/Test";
const PROPERTIES: [(&str, &str); 7] = [
    ("X-Rank", "int"),
    ("X-Order", "int"),
    ("X-Weight", "double"),
    ("X-List", "QStringList"),
    ("X-Flag", "bool"),
    ("X-Text", "QString"),
    ("XPlain", "QString"),
];

/// Services of this type: in each line the values of some properties.
const SERVICES: [&str; 8] = [
    "Name=Alpha;X-Rank=1;X-Order=5;X-Weight=0.5;X-List=one,two;X-Flag=true;X-Text=Some Text;XPlain=a",
    "Name=beta;X-Rank=7;X-Order=5;X-Weight=2.5;X-List=Two,three;X-Flag=false;X-Text=some text;XPlain=B",
    "Name=Gamma;X-Rank=3;X-Order=5;X-Weight=-1;X-List=;X-Flag=true;X-Text=",
    "Name=Delta;X-Rank=-3;X-Order=5;X-Weight=7;X-Flag=false;X-Text=text/plain",
    "Name=Épsilon;X-Text=ÉTÉ;X-List=été,HIVER",
    "Name=Zeta;X-Rank=0;X-Text=it's;X-List=it's",
    "Name=Eta;X-Rank=7;X-Weight=7;X-Text=7;X-List=7,8",
    "Name=Theta;X-Flag=true;X-Text=back\\\\slash;XPlain=theta",
];

/// Constraints on ours, on which both agree.
const MADE_UP: &[&str] = &[
    "",
    "TRUE",
    "FALSE",
    "not TRUE",
    "Name == 'Alpha'",
    "'Alpha' == Name",
    "Name != 'Alpha'",
    "Name == 'alpha'",
    "Name =~ 'ALPHA'",
    "Name !~ 'ALPHA'",
    "Name =~ 'éPSILON'",
    "Name < 'Delta'",
    "Name <= 'Delta'",
    "Name > 'Gamma'",
    "Name >= 'Gamma'",
    "[X-Text] == ''",
    "[X-Text] == 'text/plain'",
    "[X-Rank] == 7",
    "[X-Rank] != 7",
    "[X-Rank] < 3",
    "[X-Rank] <= 3",
    "[X-Rank] > 3",
    "[X-Rank] >= 3",
    "[X-Rank] == -3",
    "[X-Rank] == 7.0",
    "[X-Weight] == 7",
    "[X-Weight] == [X-Rank]",
    "[X-Weight] < [X-Rank]",
    "[X-Weight] > 0.25",
    "[X-Weight] <= 2.5",
    "[X-Weight] != 2.5",
    "[X-Weight] == -1",
    "[X-Flag]",
    "not [X-Flag]",
    "[X-Flag] == TRUE",
    "[X-Flag] == FALSE",
    "[X-Flag] != TRUE",
    "[X-Flag] == [X-Flag]",
    "exist [X-Flag]",
    "not exist [X-Flag]",
    "exist [X-Flag] and not [X-Flag]",
    "exist XPlain",
    "exist Nothing",
    "not exist Nothing",
    "Nothing == 'x'",
    "not (Nothing == 'x')",
    "Nothing != 'x'",
    "exist [X-Rank] and [X-Rank] > 1",
    "not exist [X-Rank] or [X-Rank] > 1",
    "[X-Rank] > 1 or TRUE",
    "TRUE or [X-Rank] > 1",
    "FALSE and [X-Rank] > 1",
    "FALSE or [X-Rank] > 1",
    "TRUE and [X-Rank] > 1",
    "Name == 'Alpha' or Name == 'beta' and [X-Rank] == 7",
    "(Name == 'Alpha' or Name == 'beta') and [X-Rank] == 7",
    "not (Name == 'Alpha' or Name == 'beta')",
    "'ome' ~ [X-Text]",
    "'SOME' ~ [X-Text]",
    "'SOME' ~~ [X-Text]",
    "[X-Text] ~ 'this is some text'",
    "'' ~ [X-Text]",
    "'été' ~~ [X-Text]",
    "'st' subseq [X-Text]",
    "'ST' subseq [X-Text]",
    "'ST' ~subseq [X-Text]",
    "'sx' subseq [X-Text]",
    "'xs' subseq [X-Text]",
    "'' subseq [X-Text]",
    "'st' subseq ''",
    "'texts' subseq 'text'",
    "'two' in [X-List]",
    "'tw' in [X-List]",
    "'TWO' ~in [X-List]",
    "'WO' subin [X-List]",
    "'ÉTÉ' ~in [X-List]",
    "[X-Text] in [X-List]",
    "'two' in [X-Text]",
    "7 in [X-List]",
    "'Unjank/Test' in ServiceTypes",
    "[X-Rank] + 3 == 10",
    "[X-Rank] - 3 == 4",
    "[X-Rank] * 2 == 14",
    "[X-Rank] / 2 == 3",
    "[X-Rank] / 2.0 == 3.5",
    "[X-Rank] + [X-Weight] > 9",
    "[X-Rank] + 2 * 3 == 13",
    "([X-Rank] + 2) * 3 == 27",
    "[X-Rank] - 3 - 2 == 2",
    "[X-Weight] * 2 == 5",
    "[X-Weight] - 0.5 == 2",
    "[X-Weight] / 2 == 1.25",
    "Name + 1 == 2",
    "Name == 7",
    "[X-Text] == 7",
    "[X-Flag] == 1",
    "[X-List] == 'one'",
    "[X-Flag] < TRUE",
    "[X-Flag] =~ TRUE",
    "[X-Rank] =~ 7",
    "[X-Rank] !~ 7",
    "[X-Rank] ~ 7",
    "Name",
    "[X-Rank]",
    "7",
    "'x'",
    "max [X-Rank] == 1",
    "max [X-Rank] > 0",
    "max [X-Rank] >= -1",
    "max [X-Rank] < 0.5",
    "min [X-Rank] == 1",
    "min [X-Rank] > 0",
    "max [X-Order] == 1",
    "min [X-Order] == 1",
    "max [X-Order] < 2",
    "max [X-Order] != 2",
    "exist [X-Order] and not (max [X-Order] > 2)",
    "min [X-Rank] <= 0 - 0.5",
    "min [X-Rank] < -1",
    "'two' subin [X-List]",
    "'TWO' ~subin [X-List]",
    "[X-Text] == 'back\\\\slash'",
    "exist [X-List] and 'e' in [X-List]",
    "[X-List] == [X-List]",
    "XPlain == 'B' or XPlain =~ 'A'",
    "X-Rank == 7",
    "[X-Rank] + [X-Order] * 2 - 1 == 16",
    "[X-Rank] < 'x'",
    "[X-Rank] ~ [X-Text]",
    "(exist [X-Flag]) == (exist [X-Text])",
    "0.5 == .5",
    "1 == 1.0",
    "'a' in 'abc'",
    "max Name > 0",
    "max Nothing > 0",
    "max [X-Rank] + 1 > 1.5",
    "[ X-Rank ] == 7",
    "((([X-Rank] == 7)))",
    "exist [X-Rank] == TRUE",
    "[X-Rank] == 7 and",
    "([X-Rank] == 7",
    "[X-Rank] = 7",
    "$",
    "true",
    "not TRUE or TRUE",
    "Name == 'Alpha' OR Name == 'beta'",
];

/// Constraints on ours that mean nothing to KDE's trader, or something that nobody can have meant, and what we keep; docs/index.md says why.
const OURS: [(&str, &[usize]); 10] = [
    // There it is `(not Name) == 'Alpha'`, which fails.
    ("not Name == 'Alpha' and exist [X-Rank]", &[1, 2, 3, 5, 6]),
    ("not 'two' in [X-List]", &[1, 2, 4, 5, 6]),
    // There it is no constraint.
    ("not not [X-Flag]", &[0, 2, 7]),
    // There both find whole elements only, as `in` does.
    ("'wo' subin [X-List]", &[0, 1]),
    ("'WO' ~subin [X-List]", &[0, 1]),
    // There a text has no quote in it.
    ("'it\\'s' == [X-Text]", &[5]),
    // There a fraction has no sign: the constraint ends behind the zero.
    ("[X-Weight] < -0.5", &[2]),
    ("[X-Weight] > -0.5", &[0, 1, 3, 6]),
    // There the greatest and the least of fractions are not always those of all offers.
    ("max [X-Weight] > 0.5", &[3, 6]),
    ("min [X-Weight] > 0.5", &[0, 2]),
];

/// Constraints on services and applications of the machine.
const MACHINE: [&str; 12] = [
    "Terminal",
    "not Terminal",
    "exist GenericName",
    "exist [X-KDE-ParentApp] and [X-KDE-ParentApp] == 'kcontrol'",
    "InitialPreference > 1",
    "max InitialPreference > 0",
    "'KDE' in Categories and 'system' ~in Categories",
    "'file' in Keywords or 'files' ~in Keywords",
    "'kde' ~~ DesktopEntryName and not ('kde' ~ Name)",
    "'kcm' subseq Library and [X-KDE-Weight] >= 40",
    "Exec =~ 'dolphin %U'",
    "exist Comment and 'the' ~ Comment and Icon != 'x'",
];

/// Constraints on applications, by keys that we keep under the same name.
const APPLICATIONS: [&str; 12] = [
    "'KDE' in Categories",
    "'qt' ~in Categories and not ('KDE' in Categories)",
    "exist GenericName and 'e' ~ GenericName",
    "Name =~ 'DOLPHIN'",
    "'file' ~~ Comment",
    "exist Exec and '%u' ~~ Exec",
    "'Dlp' subseq Name",
    "'dLP' ~subseq Name",
    "exist Icon and Icon !~ 'kate'",
    "'FILES' ~in Keywords or 'Editor' in Keywords",
    "exist InitialPreference and InitialPreference >= 10",
    "exist StartupWMClass and StartupWMClass == 'dolphin'",
];

/// What a trader offers: of each offer the values that it has.
struct Told {
    offers: Vec<Offer>,
    /// For each constraint the places of the offers that match.
    kept: Vec<Vec<usize>>,
}

struct Offer {
    path: String,
    fields: BTreeMap<String, Field>,
}

enum Field {
    Text(String),
    /// Texts, each with its length before it, as records hold them.
    List(Vec<u8>),
    Truth(bool),
    Whole(i64),
    Fraction(f64),
}

impl Field {
    fn of(json: &Json) -> Field {
        let value = &json[1];
        match json[0].as_str().unwrap() {
            "s" => Field::Text(value.as_str().unwrap().to_owned()),
            "l" => {
                let texts = value.as_array().unwrap().iter().map(|text| text.as_str().unwrap());
                let bytes = |text: &str| {
                    let len = u32::try_from(text.len()).unwrap().to_le_bytes();
                    len.into_iter().chain(text.bytes()).collect::<Vec<_>>()
                };
                Field::List(texts.flat_map(bytes).collect())
            }
            "b" => Field::Truth(value.as_bool().unwrap()),
            "x" => Field::Whole(value.as_i64().unwrap()),
            "d" => Field::Fraction(value.as_f64().unwrap()),
            other => panic!("{other}"),
        }
    }
}

impl ConstraintFields for Offer {
    fn field(&self, name: &str) -> Option<MemberValue<'_>> {
        Some(match self.fields.get(name)? {
            Field::Text(text) => MemberValue::Text(text),
            Field::List(bytes) => MemberValue::List(TextList::of(bytes)),
            Field::Truth(truth) => MemberValue::Truth(*truth),
            Field::Whole(number) => MemberValue::Whole(*number),
            Field::Fraction(number) => MemberValue::Fraction(*number),
        })
    }
}

/// A session of KDE with our services beside the machine's.
struct Session {
    dir: tempfile::TempDir,
}

impl Session {
    /// Makes it; nothing where KDE's library is not installed.
    fn new() -> Option<Session> {
        if !has(&["g++", "pkg-config", "qmake", "kbuildsycoca5"]) {
            return None;
        }
        if !Path::new("/usr/include/KF5/KService/KServiceTypeTrader").exists() {
            skip("no KServiceTypeTrader (package libkf5service-dev)");
            return None;
        }
        let session = Session { dir: tempfile::tempdir().unwrap() };
        let at = |name: &str| session.dir.path().join(name);
        for name in ["data/kservices5", "data/kservicetypes5", "cache", "config", "runtime"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let mut definition =
            format!("[Desktop Entry]\nType=ServiceType\nX-KDE-ServiceType={TYPE}\nName=Test\n");
        for (name, kind) in PROPERTIES {
            write!(definition, "[PropertyDef::{name}]\nType={kind}\n").unwrap();
        }
        fs::write(at("data/kservicetypes5/unjank-test.desktop"), definition).unwrap();
        for (number, service) in SERVICES.iter().enumerate() {
            let lines = service.replace(';', "\n");
            let text =
                format!("[Desktop Entry]\nType=Service\nX-KDE-ServiceTypes={TYPE}\n{lines}\n");
            fs::write(at(&format!("data/kservices5/unjank-{number}.desktop")), text).unwrap();
        }
        let made = session.command(Path::new("kbuildsycoca5")).arg("--noincremental").output();
        assert!(made.unwrap().status.success());
        compiled("tests/index_peers/ktrader.cpp", &KDE, session.dir.path());
        Some(session)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let at = |name: &str| self.dir.path().join(name);
        command
            .env("HOME", self.dir.path())
            .env("XDG_DATA_HOME", at("data"))
            .env("XDG_CACHE_HOME", at("cache"))
            .env("XDG_CONFIG_HOME", at("config"))
            .env("XDG_RUNTIME_DIR", at("runtime"))
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
            .env("LC_ALL", "C.UTF-8");
        command
    }

    fn ask(&self, service_type: &str, names: &[&str], constraints: &[&str]) -> Told {
        let mut child = self
            .command(&self.dir.path().join("peer"))
            .arg(service_type)
            .args(names)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines: String = constraints.iter().flat_map(|line| [line, "\n"]).collect();
        // It reads them when all offers are printed; they fit into the pipe.
        input.write_all(lines.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        // Not every machine has offers of every type: then the empty line is the first one.
        let split = text.strip_prefix('\n').map(|kept| ("", kept));
        let (offers, kept) = split.or_else(|| text.split_once("\n\n")).unwrap();
        let offers = offers.lines().map(|line| {
            let json: Json = serde_json::from_str(line).unwrap();
            let fields = json["fields"].as_object().unwrap().iter();
            let fields = fields.filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| (name.clone(), Field::of(value)));
            Offer { path: json["path"].as_str().unwrap().to_owned(), fields: fields.collect() }
        });
        let told = Told {
            offers: offers.collect(),
            kept: kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        };
        assert_eq!(told.kept.len(), constraints.len());
        told
    }
}

/// Returns the places of the offers that match; what is no constraint matches nothing, as KDE has it.
fn ours(offers: &[Offer], text: &str) -> Vec<usize> {
    let Ok(constraint) = Constraint::parse(text) else { return Vec::new() };
    let extremes = |name: &str| {
        let numbers = offers.iter().filter_map(|offer| match offer.fields.get(name)? {
            Field::Whole(number) => Some(*number as f64),
            Field::Fraction(number) => Some(*number),
            _ => None,
        });
        numbers.fold(None, |found: Option<(f64, f64)>, number| {
            let (least, greatest) = found.unwrap_or((number, number));
            Some((least.min(number), greatest.max(number)))
        })
    };
    let matches = |offer: &Offer| constraint.matches(offer, &extremes);
    (0..offers.len()).filter(|at| matches(&offers[*at])).collect()
}

/// Compares both, and says of each constraint on which they differ what each keeps.
fn differences(told: &Told, constraints: &[&str]) -> Vec<String> {
    let names = |kept: &[usize]| -> Vec<&str> {
        kept.iter().map(|at| told.offers[*at].path.as_str()).collect()
    };
    let differ = constraints.iter().zip(&told.kept).filter_map(|(constraint, theirs)| {
        let ours = ours(&told.offers, constraint);
        (ours != *theirs)
            .then(|| format!("{constraint}: ours {:?}, KDE's {:?}", names(&ours), names(theirs)))
    });
    differ.collect()
}

#[test]
fn constraints_on_services_of_every_kind_keep_what_kdes_trader_keeps() {
    let Some(session) = Session::new() else { return };
    let told = session.ask(TYPE, &[], MADE_UP);
    assert_eq!(told.offers.len(), SERVICES.len());
    let differ = differences(&told, MADE_UP);
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    // Nobody would be found out by constraints that keep all or nothing.
    let telling = told.kept.iter().filter(|kept| !kept.is_empty() && kept.len() < SERVICES.len());
    assert!(telling.count() >= 60);

    for (constraint, kept) in OURS {
        let mut names: Vec<&str> = ours(&told.offers, constraint)
            .into_iter()
            .map(|at| told.offers[at].path.as_str())
            .collect();
        names.sort_unstable();
        let expected: Vec<_> =
            kept.iter().map(|number| format!("unjank-{number}.desktop")).collect();
        assert_eq!(names, expected, "{constraint}");
    }
}

#[test]
fn constraints_on_the_machines_services_keep_what_kdes_trader_keeps() {
    let Some(session) = Session::new() else { return };
    for service_type in ["Application", "KCModule", "KParts/ReadOnlyPart"] {
        let told = session.ask(service_type, &[], &MACHINE);
        // What ci/packages installs has applications and modules of the control centre.
        let has_any = !told.offers.is_empty() || service_type == "KParts/ReadOnlyPart";
        assert!(has_any, "{service_type}");
        let differ = differences(&told, &MACHINE);
        assert!(differ.is_empty(), "{service_type}\n{}", differ.join("\n"));
    }
}

#[test]
fn constraints_on_our_index_keep_the_applications_that_kdes_trader_keeps() {
    let Some(session) = Session::new() else { return };
    let told = session.ask("Application", &[], &APPLICATIONS);
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect();
    let data_dirs = vec!["/usr/local/share".into(), "/usr/share".into()];
    let places = ApplicationDirectories { data_dirs, path, ..ApplicationDirectories::default() };
    let sources = IndexSources { places, locale: "C".into(), ..IndexSources::default() };
    let built = build(&sources, None, CheckDepth::Directories).unwrap();
    let index = Index::from_bytes(built.image).unwrap();
    let offered = |path: &str| told.offers.iter().position(|offer| offer.path == path);
    let both = |record: &IndexRecord<'_>| offered(record.path()?.to_str()?);
    assert!(index.apps().filter_map(|record| both(&record)).count() >= 10);
    for (text, theirs) in APPLICATIONS.iter().zip(&told.kept) {
        let constraint = Constraint::parse(text).unwrap();
        let matching = index.apps().filter(|record| constraint.matches(record, &|_| None));
        let mut ours: Vec<usize> = matching.filter_map(|record| both(&record)).collect();
        ours.sort_unstable();
        let known = |at: &usize| index.apps().any(|record| both(&record) == Some(*at));
        let theirs: Vec<usize> = theirs.iter().copied().filter(known).collect();
        assert_eq!(ours, theirs, "{text}");
    }
}
