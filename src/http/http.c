/*
 * http.c - HTTP GET through libcurl.
 *
 * Invariants
 *   I1  The body never grows beyond the limit that was asked for, whatever the peer says or sends.
 *   I2  No environment variable redirects a request: proxies are off.
 *
 * Threads: any. Ownership: the body moves to the caller.
 */
#include "http/http.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

#define URL_MAX 1200

typedef struct body_sink {
    char *bytes;
    size_t size;
    size_t room;
    size_t limit;
    bool is_full;
    bool lacks_memory;
} body_sink;

/* libcurl's write callback: fewer bytes than given end the transfer. */
static size_t take_body(char *bytes, size_t one, size_t count, void *context)
{
    body_sink *sink = context;
    (void)one; /* always 1 */

    if (count > sink->limit - sink->size) { /* I1 */
        sink->is_full = true;
        return 0;
    }
    if (sink->size + count + 1 > sink->room) {
        const size_t room = 2 * (sink->size + count + 1);
        char *grown = kvarve_reallocate(sink->bytes, room);
        if (grown == NULL) {
            sink->lacks_memory = true;
            return 0;
        }
        sink->bytes = grown;
        sink->room = room;
    }
    memcpy(sink->bytes + sink->size, bytes, count);
    sink->size += count;
    sink->bytes[sink->size] = '\0';
    return count;
}

static bool is_url(const char *address)
{
    return strncmp(address, "http://", 7) == 0;
}

static bool set_options(CURL *curl, const http_request *request, const char *url, body_sink *sink)
{
    CURLcode code = curl_easy_setopt(curl, CURLOPT_URL, url);

    if (!is_url(request->address) && code == CURLE_OK) {
        code = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, request->address);
    }
    code = code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    code = code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* I2 */
    code = code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    code = code != CURLE_OK ? code
                            : curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    code = code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    code = code != CURLE_OK ? code : curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
    if (request->bearer != NULL && code == CURLE_OK) {
        code = curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, request->bearer);
        code = code != CURLE_OK ? code
                                : curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
    }
    return code == CURLE_OK;
}

static kvarve_status failed(const http_request *request, const body_sink *sink, CURLcode code,
                            kvarve_error *err)
{
    if (sink->is_full) {
        return kvarve_fail(err, KVARVE_NO_SPACE, "%.80s%.40s answers with more than %zu bytes",
                           request->address, request->path, sink->limit);
    }
    if (sink->lacks_memory || code == CURLE_OUT_OF_MEMORY) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "the answer of %.100s", request->address);
    }
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        return kvarve_fail(err, KVARVE_INVALID, "%.100s is no address of a server",
                           request->address);
    }
    return kvarve_fail(err, KVARVE_UNAVAILABLE, "ask %.80s%.40s: %s", request->address,
                       request->path, curl_easy_strerror(code));
}

static kvarve_status get(CURL *curl, const http_request *request, http_answer *out,
                         kvarve_error *err)
{
    char url[URL_MAX];
    body_sink sink = {.limit = request->body_max};
    const char *base = is_url(request->address) ? request->address : "http://localhost";
    size_t length = strlen(base);

    while (length > 0 && base[length - 1] == '/') {
        length--;
    }
    const size_t path_length = strlen(request->path);
    if (length + path_length >= sizeof(url)) {
        return kvarve_fail(err, KVARVE_INVALID, "the address %.100s... is too long",
                           request->address);
    }
    memcpy(url, base, length);
    memcpy(url + length, request->path, path_length + 1);
    if (!set_options(curl, request, url, &sink)) {
        return kvarve_fail(err, KVARVE_INVALID, "%.100s is no address of a server",
                           request->address);
    }
    const CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_OK && sink.bytes == NULL) {
        sink.bytes = kvarve_duplicate("");
        sink.lacks_memory = sink.bytes == NULL;
    }
    if (code != CURLE_OK || sink.bytes == NULL) {
        kvarve_release(sink.bytes);
        return failed(request, &sink, code, err);
    }
    out->body = sink.bytes;
    out->size = sink.size;
    out->code = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &out->code);
    return KVARVE_OK;
}

kvarve_status http_get(const http_request *request, http_answer *out, kvarve_error *err)
{
    CURL *curl = curl_easy_init();

    if (curl == NULL) {
        return kvarve_fail(err, KVARVE_NO_MEMORY, "a request to %.100s", request->address);
    }
    const kvarve_status status = get(curl, request, out, err);
    curl_easy_cleanup(curl);
    return status;
}
