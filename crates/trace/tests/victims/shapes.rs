//! Reads nothing from its input, below generic functions, closures and trait objects.

use std::io::Read;

trait Act {
    fn act(&self, n: usize) -> usize;
}

struct Holder<T>(T);

impl<T: AsRef<[u8]>> Act for Holder<T> {
    #[inline(never)]
    fn act(&self, n: usize) -> usize {
        let mut bytes = vec![0; self.0.as_ref().len()];
        let got = std::io::stdin().read(&mut bytes).unwrap_or(0);
        std::hint::black_box(got + n)
    }
}

#[inline(never)]
fn through<F: Fn(usize) -> usize>(f: F) -> usize {
    let got = f(3);
    std::hint::black_box(got) + 1
}

fn main() {
    let holder: Box<dyn Act> = Box::new(Holder(String::from("four")));
    let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| through(|n| holder.act(n))));
    std::thread::spawn(|| through(|n| Holder([0; 9]).act(n))).join().unwrap();
    std::process::exit(i32::from(got.unwrap() == 42));
}
