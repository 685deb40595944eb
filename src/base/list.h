/*
 * list.h - a doubly linked list threaded through its items.
 *
 * An item embeds a kvarve_link and may be on one list per link. A link that is on
 * no list points to itself, so removing twice is harmless. No allocation.
 */
#ifndef KVARVE_BASE_LIST_H
#define KVARVE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kvarve_link {
    struct kvarve_link *next;
    struct kvarve_link *previous;
} kvarve_link;

/* A list is a link that stands for head and end. */
typedef kvarve_link kvarve_list;

/* The item of type `type` whose member `member` is *link. */
#define KVARVE_LIST_ITEM(link, type, member)                                                       \
    ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* Visit each link of `list`; the list may not change while it is walked. */
#define KVARVE_LIST_FOREACH(link, list)                                                            \
    for ((link) = (list)->next; (link) != (list); (link) = (link)->next)

static inline void kvarve_list_init(kvarve_link *link)
{
    link->next = link;
    link->previous = link;
}

static inline bool kvarve_list_is_empty(const kvarve_list *list)
{
    return list->next == list;
}

static inline void kvarve_list_remove(kvarve_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    kvarve_list_init(link);
}

/* Put `link`, which is on no list, last. */
static inline void kvarve_list_append(kvarve_list *list, kvarve_link *link)
{
    link->next = list;
    link->previous = list->previous;
    list->previous->next = link;
    list->previous = link;
}

/* The first link, taken off the list; NULL when it is empty. */
static inline kvarve_link *kvarve_list_take_first(kvarve_list *list)
{
    kvarve_link *link = list->next;

    if (link == list) {
        return NULL;
    }
    kvarve_list_remove(link);
    return link;
}

#endif
