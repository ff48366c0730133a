// A switch between network namespaces, whose wires have a delay and a rate: what tc's netem does, for kernels that have none.
//
// usage: wire DELAY_US MBIT NAMESPACE…      each has a tap device eth0; ends when its standard input does
//
// A frame leaves its sender's wire when those before it have left, arrives after the delay, and then waits for its receiver's
// wire.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "util/clock.h"

enum { MOST_PORTS = 16, MOST_FRAME = 2048, ADDRESS = 6 };

struct frame {
    double due;
    int length;
    struct frame *next;
    uint8_t bytes[MOST_FRAME];
};

struct port {
    int tap;
    uint8_t address[ADDRESS]; // whoever sends from there
    bool known;
    double sends_until, receives_until; // its wires are busy
    struct frame *first, **last;        // to be received, in order
};

static struct port ports[MOST_PORTS];
static int n_ports;
static double delay, seconds_per_byte;

static int open_tap(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    const int space = open(path, O_RDONLY);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0)
        return -1;
    close(space);
    const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strcpy(request.ifr_name, "eth0");
    return tap >= 0 && ioctl(tap, TUNSETIFF, &request) == 0 ? tap : -1;
}

// When a wire that is busy until *until has carried the bytes that come at `at`.
static double carry(double *until, double at, int length)
{
    *until = (*until > at ? *until : at) + length * seconds_per_byte;
    return *until;
}

static void put(struct port *to, const struct frame *frame, double arrives)
{
    struct frame *copy = malloc(sizeof *copy);
    *copy = *frame;
    copy->due =
        carry(&to->receives_until, arrives - frame->length * seconds_per_byte, frame->length); // which it does as it comes
    copy->next = NULL;
    *to->last = copy;
    to->last = &copy->next;
}

static void take(struct port *from)
{
    struct frame frame;
    while ((frame.length = (int)read(from->tap, frame.bytes, sizeof frame.bytes)) > 2 * ADDRESS) {
        memcpy(from->address, frame.bytes + ADDRESS, ADDRESS);
        from->known = true;
        const double arrives = carry(&from->sends_until, clock_seconds(), frame.length) + delay;
        struct port *to = NULL;
        for (int p = 0; p < n_ports; p++)
            if (ports[p].known && memcmp(ports[p].address, frame.bytes, ADDRESS) == 0)
                to = &ports[p];
        for (int p = 0; p < n_ports; p++)
            if (to ? to == &ports[p] : &ports[p] != from)
                put(&ports[p], &frame, arrives);
    }
}

// Hands over what is due. The time of the next; a second where there is none.
static double give(double now)
{
    double next = now + 1;
    for (int p = 0; p < n_ports; p++) {
        struct port *port = &ports[p];
        while (port->first && port->first->due <= now) {
            struct frame *frame = port->first;
            if (write(port->tap, frame->bytes, (size_t)frame->length) < 0)
                perror("wire"); // TCP sends it again
            port->first = frame->next;
            if (!port->first)
                port->last = &port->first;
            free(frame);
        }
        if (port->first && port->first->due < next)
            next = port->first->due;
    }
    return next;
}

int main(int argc, char **argv)
{
    n_ports = argc - 3;
    if (n_ports < 2 || n_ports > MOST_PORTS)
        return 2;
    delay = atof(argv[1]) / 1e6;
    seconds_per_byte = 8 / (atof(argv[2]) * 1e6);
    prctl(PR_SET_TIMERSLACK, 1);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1}); // a wire waits for no processor
    struct pollfd files[MOST_PORTS + 1] = {{.fd = 0, .events = POLLIN}};
    for (int p = 0; p < n_ports; p++) {
        ports[p].tap = open_tap(argv[3 + p]);
        ports[p].last = &ports[p].first;
        files[p + 1] = (struct pollfd){.fd = ports[p].tap, .events = POLLIN};
        if (ports[p].tap < 0) {
            perror(argv[3 + p]);
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    while (!(files[0].revents & (POLLHUP | POLLIN))) {
        const double now = clock_seconds(), wait = give(now) - now;
        const struct timespec timeout = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
        if (ppoll(files, (nfds_t)n_ports + 1, &timeout, NULL) < 0)
            return 1;
        for (int p = 0; p < n_ports; p++)
            if (files[p + 1].revents)
                take(&ports[p]);
    }
    return 0;
}
