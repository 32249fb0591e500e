/* What a program finds in the network of its host. The first word of the command line says what it does; each line of output is flushed.
 *
 *   addresses                    whether the interface of each device has the addresses that its GID table shows
 *   provider                     opens the provider as llama.cpp does, by its absolute path
 *   reach PORT ADDRESS...        prints, for ever, when an address begins or ceases to be reached by TCP
 *   serve PORT                   echoes one byte of each connection, for ever
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROVIDER "/usr/lib/librdma.dylib"
#define CHECK(is_true) do { if (!(is_true)) { fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)); exit(1); } } while (0)

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    return found;
}

static void *open_provider(void) {
    void *library = dlopen(PROVIDER, RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    return library;
}

static int provider(void) {
    void *library = open_provider();
    void **(*list)(int *) = function(library, "ibv_get_device_list");
    const char *(*name)(void *) = function(library, "ibv_get_device_name");
    int count = 0;
    void **devices = list(&count);
    CHECK(devices && count > 0);
    printf("%d devices, %s first\n", count, name(devices[0]));
    /* Two copies of the provider in a process would be two hosts. */
    void *preloaded = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
    printf("%s\n", preloaded == (void *)list ? "the preloaded one" : preloaded ? "another one" : "not preloaded");
    return 0;
}

static int has_address(const char *interface, const unsigned char gid[16]) {
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct ifaddrs *all, *each;
    int found = 0;
    CHECK(getifaddrs(&all) == 0);
    for (each = all; each; each = each->ifa_next) {
        if (!each->ifa_addr || strcmp(each->ifa_name, interface)) continue;
        if (each->ifa_addr->sa_family == AF_INET)
            found |= !memcmp(gid, mapped, 12) && !memcmp(gid + 12, &((struct sockaddr_in *)each->ifa_addr)->sin_addr, 4);
        if (each->ifa_addr->sa_family == AF_INET6)
            found |= !memcmp(gid, &((struct sockaddr_in6 *)each->ifa_addr)->sin6_addr, 16);
    }
    freeifaddrs(all);
    return found;
}

static int addresses(void) {
    static const unsigned char zero[16];
    void *library = open_provider();
    void **(*list)(int *) = function(library, "ibv_get_device_list");
    const char *(*name)(void *) = function(library, "ibv_get_device_name");
    void *(*open_device)(void *) = function(library, "ibv_open_device");
    int (*query_gid)(void *, unsigned char, int, unsigned char *) = function(library, "ibv_query_gid");
    int count = 0;
    void **devices = list(&count);
    for (int device = 0; device < count; device++) {
        const char *interface = name(devices[device]) + strlen("rdma_");
        void *context = open_device(devices[device]);
        unsigned char gid[16];
        int entries = 0;
        CHECK(context);
        for (int index = 0; query_gid(context, 1, index, gid) == 0; index++) {
            if (!memcmp(gid, zero, 16)) continue;
            entries++;
            if (!has_address(interface, gid)) { printf("%s lacks entry %d\n", interface, index); return 1; }
        }
        printf("%s has %d\n", interface, entries);
    }
    return 0;
}

static int reaches(const char *address, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(address, port, &hints, &found)) return 0;
    int s = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 1;
    socklen_t length = sizeof error;
    struct pollfd ready = {.fd = s, .events = POLLOUT};
    char byte = 'x';
    CHECK(s >= 0);
    if ((connect(s, found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS) && poll(&ready, 1, 300) == 1) {
        CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
        ready.events = POLLIN;
        error = error || send(s, &byte, 1, MSG_NOSIGNAL) != 1 || poll(&ready, 1, 300) != 1 || recv(s, &byte, 1, 0) != 1;
    }
    close(s);
    freeaddrinfo(found);
    return !error;
}

static int reach(int count, char **words) {
    int before[16];
    CHECK(count > 1 && count < 16);
    memset(before, -1, sizeof before);
    for (;;) {
        for (int i = 1; i < count; i++) {
            int now = reaches(words[i], words[0]);
            if (now != before[i]) printf("%s %s\n", words[i], now ? "reached" : "cut");
            before[i] = now;
        }
        usleep(20000);
    }
}

static int serve(int port) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
    int s = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(s >= 0 && bind(s, (struct sockaddr *)&any, sizeof any) == 0 && listen(s, 64) == 0);
    printf("serving\n");
    for (;;) {
        char byte;
        int peer = accept(s, NULL, NULL);
        CHECK(peer >= 0);
        struct pollfd ready = {.fd = peer, .events = POLLIN};
        if (poll(&ready, 1, 300) == 1 && recv(peer, &byte, 1, 0) == 1) send(peer, &byte, 1, MSG_NOSIGNAL);
        close(peer);
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "addresses")) return addresses();
    if (!strcmp(what, "provider")) return provider();
    if (!strcmp(what, "reach")) return reach(count - 2, words + 2);
    if (!strcmp(what, "serve") && count == 3) return serve(atoi(words[2]));
    fprintf(stderr, "net addresses | provider | reach PORT ADDRESS... | serve PORT\n");
    return 2;
}
