//! `otlp --metrics` and what is told of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use hangs::model::{Hang, HangRecord};
use hangs::store::{EraseSelection, erase, files, read};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message;
use unjank_export::counters::{HangCounters, MetricSeries};

use crate::fixture::{DAY_NS, Place, SECOND, hang, period, read_post, stdout};

const LOGS: &str = "/v1/logs";
const METRICS: &str = "/v1/metrics";
/// A request that has not come by then does not come.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Starts a receiver that answers so to metrics, and takes all else. It ends with the test.
pub(crate) fn receive(metrics: &'static str) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (taken, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let taken = taken.clone();
            // The sender keeps a connection for each address.
            thread::spawn(move || {
                while let Some((path, body)) = read_post(&mut stream) {
                    let status = if path == METRICS { metrics } else { "200" };
                    taken.send((path, body)).unwrap_or(());
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                    stream.get_mut().write_all(head.as_bytes()).unwrap_or(());
                }
            });
        }
    });
    (url, requests)
}

fn pairs(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some((attribute.key.clone(), text)),
        other => Some((attribute.key.clone(), format!("{other:?}"))),
    };
    attributes.iter().filter_map(text).collect()
}

/// The metrics of a request by their names, and the attributes of the machine.
fn metrics(body: &[u8]) -> (BTreeMap<String, Metric>, BTreeMap<String, String>) {
    let mut request = ExportMetricsServiceRequest::decode(body).unwrap();
    assert_eq!(request.resource_metrics.len(), 1);
    let of_machine = request.resource_metrics.remove(0);
    let all = of_machine.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
    let resource = pairs(&of_machine.resource.unwrap().attributes);
    (all.map(|metric| (metric.name.clone(), metric)).collect(), resource)
}

fn place() -> Place {
    let place = Place::new();
    place.record_hangs(1..4);
    place.record(&[HangRecord::Watched(period(DAY_NS)), HangRecord::Watched(period(DAY_NS + 1))]);
    place
}

fn number(point: &NumberDataPoint) -> f64 {
    match point.value.unwrap() {
        Number::AsInt(number) => number as f64,
        Number::AsDouble(number) => number,
    }
}

#[test]
fn metrics_have_the_names_and_the_values_of_openmetrics_and_are_sent_on_demand() {
    let place = place();
    let (url, requests) = receive("200");
    stdout(&place.run(&["otlp", "--to", &url]));
    assert!(requests.try_iter().all(|(path, _)| path == LOGS));
    assert!(stdout(&place.run(&["otlp", "--metrics", "--to", &url])).contains("/v1/metrics: "));
    let sent: Vec<_> = requests.try_iter().collect();
    assert_eq!(sent.len(), 1, "the hangs were sent before");
    let (metrics, resource) = metrics(&sent[0].1);
    assert_eq!(resource["host.id"], "desk-1");
    assert_eq!(resource["service.name"], "unjank-hangs");

    let hangs = &metrics["unjank_hangs_total"];
    let Some(Data::Sum(sum)) = &hangs.data else { panic!("{hangs:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{sum:?}");
    let point = &sum.data_points[0];
    assert_eq!(pairs(&point.attributes)["program"], "nautilus");
    assert_eq!(pairs(&point.attributes)["cause"], "sync");
    assert_eq!(point.value, Some(Number::AsInt(3)));
    // The first record is a minute that was watched.
    assert_eq!(point.start_time_unix_nano, DAY_NS);
    assert!(point.time_unix_nano > 1_700_000_000 * SECOND);

    let steps = &metrics["unjank_step_seconds"];
    let Some(Data::Histogram(histogram)) = &steps.data else { panic!("{steps:?}") };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (30, 30));
    assert_eq!(point.bucket_counts[..3], [10, 8, 6]);
    assert_eq!(point.explicit_bounds.len() + 1, point.bucket_counts.len());
    assert_eq!(steps.unit, "s");

    // All that is printed for Prometheus is sent under the same names.
    let text = stdout(&place.run(&["openmetrics", "--print"]));
    let mut compared = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        if name.ends_with("_bucket") {
            continue;
        }
        let metric = metrics.get(name).unwrap_or_else(|| panic!("{name} is not sent"));
        let (points, unit) = match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => {
                (&sum.data_points, if name.ends_with("_seconds_total") { "s" } else { "{hang}" })
            }
            Data::Gauge(gauge) => (&gauge.data_points, ""),
            other => panic!("{other:?}"),
        };
        assert_eq!(metric.unit, unit, "{name}");
        assert!(!metric.description.is_empty());
        if name.starts_with("unjank_") {
            assert_eq!(number(&points[0]), value.parse::<f64>().unwrap(), "{name}");
        } else {
            // Since the kernel was started.
            assert!(number(&points[0]) <= value.parse().unwrap(), "{name} only grows");
            let begin = points[0].start_time_unix_nano;
            assert!(begin > 0 && begin < points[0].time_unix_nano, "{name}");
        }
        compared += 1;
    }
    assert!(compared >= 5, "{text}");
}

#[test]
fn a_dry_run_shows_the_metrics_and_sends_none() {
    let place = place();
    let (url, requests) = receive("200");
    let output = place.run(&["otlp", "--dry-run", "--metrics", "--fact", "a=b", "--to", &url]);
    let shown = stdout(&output);
    let mut shown = serde_json::Deserializer::from_str(&shown).into_iter::<serde_json::Value>();
    let logs: ExportLogsServiceRequest =
        serde_json::from_value(shown.next().unwrap().unwrap()).unwrap();
    assert_eq!(logs.resource_logs[0].scope_logs[0].log_records.len(), 3);
    let told: ExportMetricsServiceRequest =
        serde_json::from_value(shown.next().unwrap().unwrap()).unwrap();
    let (metrics, resource) = metrics(&told.encode_to_vec());
    assert!(metrics.contains_key("unjank_watched_seconds_total") && shown.next().is_none());
    assert_eq!(resource["unjank.fact.a"], "b");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("metrics would be sent to http://127.0.0.1")
            && said.ends_with("nothing was.\n")
    );
    assert!(requests.try_iter().next().is_none() && !place.path("state").exists());
}

#[test]
fn what_is_so_on_the_machine_is_told_with_its_hangs_and_its_metrics() {
    let place = place();
    let facts = place.path("facts");
    fs::write(
        &facts,
        "# of the package manager\nnautilus=43.2-1\ndesktop=GNOME\ndisk:vda2=Some SSD\n",
    )
    .unwrap();
    let (url, requests) = receive("200");
    let run = || {
        let mut command = place.command();
        command.args(["otlp", "--metrics", "--facts", "--fact", "nautilus=44.0-1", "--to", &url]);
        command.arg("--facts-from").arg(&facts).output().unwrap()
    };
    stdout(&run());
    let sent: BTreeMap<String, Vec<u8>> = requests.try_iter().collect();
    let logs = ExportLogsServiceRequest::decode(&*sent[LOGS]).unwrap();
    let of_logs = pairs(&logs.resource_logs[0].resource.clone().unwrap().attributes);
    let (_, of_metrics) = metrics(&sent[METRICS]);
    assert_eq!(of_logs, of_metrics);
    // What the person says is so.
    assert_eq!(of_logs["unjank.fact.nautilus"], "44.0-1");
    assert_eq!(of_logs["unjank.fact.desktop"], "GNOME");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(of_logs["unjank.fact.kernel"], kernel.trim());
    let system = of_logs["unjank.fact.system"].split_once(' ').unwrap();
    assert_eq!((&*of_logs["os.name"], &*of_logs["os.version"]), system);
    let event = pairs(&logs.resource_logs[0].scope_logs[0].log_records[0].attributes);
    assert_eq!(event["unjank.hang.disk_model"], "Some SSD");
    assert_eq!(event["thread.name"], "main");
    // Without them nothing is told of the machine, and a file that cannot be read is an error.
    place.record_hangs(4..5);
    stdout(&place.run(&["otlp", "--metrics", "--to", &url]));
    for (path, body) in requests.try_iter() {
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(!text.contains("unjank.fact") && !text.contains("disk_model"), "{path}");
    }
    fs::write(&facts, "nautilus\n").unwrap();
    let output = run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("line 1: "), "{said}");
    assert!(requests.try_iter().next().is_none());
}

#[test]
fn a_receiver_that_takes_no_metrics_is_an_error_and_the_hangs_are_there() {
    for (status, told) in [("404", "takes no metrics: it answers 404"), ("503", "hint: the sums")] {
        let place = place();
        let (url, requests) = receive(status);
        let output = place.run(&["otlp", "--metrics", "--to", &url]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(told), "{said}");
        assert_eq!(requests.try_iter().next().unwrap().0, LOGS);
        assert!(stdout(&place.run(&["otlp", "--to", &url])).starts_with("Nothing new"));
    }
}

#[test]
fn who_follows_sends_metrics_beside_hangs_and_goes_on_where_they_are_not_taken_now() {
    let place = place();
    let (url, requests) = receive("503");
    let mut sender = place.command();
    let mut sender = sender.args(["otlp", "--follow", "--metrics", "--to", &url]).spawn().unwrap();
    let taken = [(); 2].map(|()| requests.recv_timeout(LIMIT));
    place.record_hangs(4..5);
    let next = requests.recv_timeout(LIMIT);
    sender.kill().unwrap();
    sender.wait().unwrap();
    let paths = taken.map(|request| request.expect("hangs, then metrics are sent within LIMIT").0);
    let next = next.expect("a new hang is sent within LIMIT");
    assert_eq!((paths, &*next.0), ([LOGS.to_owned(), METRICS.to_owned()], LOGS));
    let logs = ExportLogsServiceRequest::decode(&*next.1).unwrap();
    assert_eq!(logs.resource_logs[0].scope_logs[0].log_records.len(), 1);
}

#[test]
fn who_follows_does_not_tell_of_programs_that_were_erased() {
    let place = place();
    let other = |number| Hang { program: "secret".to_owned(), ..hang(number, DAY_NS + number) };
    let record = |hang| place.record(&[HangRecord::Hang(Box::new(hang))]);
    record(other(4));
    let (disk, dir) = (store::disk::real(), place.path("store"));
    let mut counters = HangCounters::default();
    let mut count = |now_ns| {
        counters.add_from(&read(&*disk, &dir).unwrap(), &files(&*disk, &dir).unwrap(), now_ns);
        let all = counters.families(&*disk, std::path::Path::new("/nonexistent"));
        let MetricSeries::Count(_, series) = all[0].series.clone() else { panic!("{all:?}") };
        let counts: BTreeMap<String, u64> =
            series.into_iter().map(|(labels, count)| (labels[0].1.clone(), count)).collect();
        (counts, counters.since_ns().unwrap())
    };
    let of = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
        counts.iter().map(|(program, count)| ((*program).to_owned(), *count)).collect()
    };
    assert_eq!(count(7 * DAY_NS), (of(&[("nautilus", 3), ("secret", 1)]), DAY_NS));
    let selection =
        EraseSelection { program: Some("secret".to_owned()), ..EraseSelection::default() };
    erase(&*disk, &dir, &selection, u64::MAX).unwrap();
    record(hang(5, DAY_NS + 5));
    // What was counted before is not counted again, and the sums say so.
    assert_eq!(count(8 * DAY_NS), (of(&[("nautilus", 1)]), 7 * DAY_NS));
    record(hang(6, DAY_NS + 6));
    assert_eq!(count(9 * DAY_NS), (of(&[("nautilus", 2)]), 7 * DAY_NS));
}
