/* Computes without end. On SIGUSR1 it forbids to be dumped, on SIGUSR2 it allows it again, on SIGHUP it executes the program that it
   was told, and says so each time. */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static char **executed;

static void change(int number) {
    if (number == SIGHUP) {
        execv(executed[0], executed);
        _exit(2);
    }
    prctl(PR_SET_DUMPABLE, number == SIGUSR2, 0, 0, 0);
    (void)!write(1, "c", 1);
}

int main(int count, char **arguments) {
    int numbers[] = {SIGUSR1, SIGUSR2, SIGHUP};
    executed = arguments + 1;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    for (int at = 0; at < 3 && count > 1; at++) signal(numbers[at], change);
    (void)!write(1, "c", 1);
    for (volatile unsigned long turns = 0;; turns++) {}
}
