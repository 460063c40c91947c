//! What a service says that it can be asked, by introspection.

use std::time::Duration;

use super::wire::{ERROR, Target, Wire};

/// A method of an object.
#[derive(Clone, Debug)]
pub struct Method {
    pub target: Target,
    /// The types of its arguments.
    pub signature: String,
}

/// Asks a service for the methods of all its objects.
pub fn methods(address: &str, name: &str) -> Vec<Method> {
    let mut wire = Wire::connect(address, Duration::from_secs(50)).unwrap();
    let mut all = Vec::new();
    let mut paths = vec!["/".to_owned()];
    while let Some(path) = paths.pop() {
        let target = Target::new(name, &path, "org.freedesktop.DBus.Introspectable", "Introspect");
        let answer = wire.call(&target, "", &[]).unwrap();
        assert_ne!(answer.kind, ERROR, "{name} {path}: {}", answer.error);
        let node = read(name, &path, &answer.text());
        all.extend(node.0);
        let above = if path == "/" { String::new() } else { path };
        paths.extend(node.1.iter().map(|child| format!("{above}/{child}")));
    }
    all
}

/// Reads a description: the methods of the object, and the names of those below it.
fn read(name: &str, path: &str, xml: &str) -> (Vec<Method>, Vec<String>) {
    let (mut methods, mut children) = (Vec::<Method>::new(), Vec::new());
    let mut interface = String::new();
    let mut in_method = false;
    for tag in xml.split('<').filter_map(|part| part.split('>').next()) {
        let attribute = |name: &str| {
            let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        match tag.split([' ', '/']).next() {
            Some("node") => children.extend(attribute("name")),
            Some("interface") => interface = attribute("name").unwrap(),
            Some("method") => {
                in_method = true;
                let member = attribute("name").unwrap();
                let target = Target::new(name, path, &interface, &member);
                methods.push(Method { target, signature: String::new() });
            }
            Some("signal" | "property") => in_method = false,
            Some("arg") if in_method && attribute("direction").as_deref() == Some("in") => {
                methods.last_mut().unwrap().signature += &attribute("type").unwrap();
            }
            _ => {}
        }
    }
    (methods, children)
}
