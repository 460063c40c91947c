// Reads nothing from its input, below templates, lambdas, virtual functions and exceptions.
#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace shapes {

static volatile int sink;

__attribute__((noinline)) static int look(int n)
{
    char byte;
    int got = static_cast<int>(read(0, &byte, 1));
    sink = sink + got;
    return got + n;
}

template <typename T, int N>
struct Box {
    std::map<std::string, T> inside;
    __attribute__((noinline)) int take(const T &what)
    {
        inside["x"] = what;
        int got = look(N);
        sink = sink + static_cast<int>(inside.size());
        return got;
    }
};

struct Base {
    virtual ~Base() = default;
    virtual int act(int n) = 0;
};

struct Derived : Base {
    __attribute__((noinline)) int act(int n) override
    {
        int got = Box<std::vector<int>, 4>().take({ n, n });
        sink = sink + got;
        return got;
    }
    int operator()(int n) const { return look(n); }
};

__attribute__((noinline)) static int thrown(int n)
{
    try {
        if (n > 0)
            throw std::runtime_error("x");
    } catch (const std::exception &) {
        int got = look(n);
        sink = sink + got;
        return got;
    }
    return 0;
}

} // namespace shapes

int main(int argc, char **)
{
    shapes::Derived derived;
    shapes::Base *volatile base = &derived;
    base->act(argc);
    std::function<int(int)> function = [&](int n) { return derived(n) + 1; };
    std::vector<int> numbers { 1 };
    std::for_each(numbers.begin(), numbers.end(), [&](int n) { shapes::sink = shapes::sink + function(n); });
    return shapes::thrown(argc) == 42;
}
