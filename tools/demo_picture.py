"""The demo's result as a picture: bytes written turn by turn, and the first token after kill -9."""

WIDTH, HEIGHT = 760, 366
LEFT, TOP, BOTTOM, PLOT_WIDTH = 56, 74, 300, 440
BESIDE = 548
ALONE, OURS, INK, FAINT = "#b4bac4", "#0f766e", "#1f2937", "#6b7280"
FONT = "font-family='system-ui, -apple-system, sans-serif'"


def text(x, y, content, size=12, anchor="start", colour=INK, weight="normal"):
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' "
        f"fill='{colour}' font-weight='{weight}'>{content}</text>"
    )


def bar(x, y, width, height, colour):
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' rx='1.5' "
        f"fill='{colour}'/>"
    )


def round_step(largest):
    """1, 2 or 5 of a power of ten: at most six steps up to the largest."""
    return next(
        first * 10**power
        for power in range(12)
        for first in (1, 2, 5)
        if largest <= 6 * first * 10**power
    )


def turn_bars(turns, killed_after):
    """Two bars a turn, in megabytes."""
    alone = [turn["slot_file_bytes"] / 1e6 for turn in turns]
    ours = [
        sum(turn[f"written_{part}_bytes"] for part in ("payload", "index", "header")) / 1e6
        for turn in turns
    ]
    step = round_step(max(alone + ours))
    top = (int(max(alone + ours) / step) + 1) * step
    scale = (BOTTOM - TOP) / top
    slot = PLOT_WIDTH / len(turns)
    out = []
    for mark in range(0, top + 1, step):
        y = BOTTOM - mark * scale
        out.append(f"<path d='M{LEFT} {y:.1f}H{LEFT + PLOT_WIDTH}' stroke='#e5e7eb'/>")
        out.append(text(LEFT - 8, y + 4, f"{mark} MB" if mark else "0", 11, "end", FAINT))
    for index, (other, own) in enumerate(zip(alone, ours)):
        x, width = LEFT + index * slot + slot * 0.14, slot * 0.34
        out.append(bar(x, BOTTOM - other * scale, width, other * scale, ALONE))
        out.append(bar(x + width + 2, BOTTOM - own * scale, width, own * scale, OURS))
        out.append(text(x + width + 1, BOTTOM + 16, f"turn {index + 1}", 11, "middle", FAINT))
    x = LEFT + killed_after * slot
    out.append(
        f"<path d='M{x:.1f} {TOP - 4}V{BOTTOM}' stroke='#b91c1c' stroke-dasharray='4 3'/>"
    )
    out.append(text(x, TOP - 9, "kill -9", 11, "middle", "#b91c1c", "bold"))
    return out


def seconds(milliseconds):
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def beside(result):
    """Totals, and the time to the first token of the turn after the kill."""
    totals, without = result["totals"], result["without_kvarve"]
    revived = result["turns"][result["killed_after_turn"]]
    rows = (
        ("written in all turns", totals["slot_file_bytes"], totals["written_bytes"], megabytes),
        (
            "first token after kill -9",
            without["first_token_ms"],
            revived["emit_to_first_token_ms"],
            seconds,
        ),
        (
            "tokens read for it",
            without["reread_tokens"],
            revived["read_tokens"],
            lambda count: f"{count:,}",
        ),
    )
    out, y = [], TOP
    for title, other, own, shown in rows:
        out.append(text(BESIDE, y + 4, title, 12, weight="bold"))
        widest = 120 / max(other, own)
        for line, (amount, colour) in enumerate(((other, ALONE), (own, OURS))):
            at = y + 14 + 19 * line
            width = max(amount * widest, 2)
            out.append(bar(BESIDE, at, width, 14, colour))
            out.append(text(BESIDE + width + 6, at + 11, shown(amount), 11, colour=FAINT))
        y += 78
    return out


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def legend():
    y = HEIGHT - 20
    return [
        bar(LEFT, y - 10, 12, 12, ALONE),
        text(LEFT + 18, y, "slot files, each kept whole; first token: a server that kept nothing"),
        bar(LEFT + 430, y - 10, 12, 12, OURS),
        text(LEFT + 448, y, "kvarve"),
    ]


def picture(result):
    """result: one model of result.json."""
    tokens = result["turns"][-1]["tokens"]
    same = "the same text" if result["totals"]["text_identical"] else "ANOTHER TEXT"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' {FONT}>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='8' fill='#ffffff'/>",
        text(LEFT, 30, f"{result['model']}: bytes written after each turn", 15, weight="bold"),
        text(LEFT, 48, f"{tokens:,} tokens at the end; {same} as without the kill", colour=FAINT),
        *turn_bars(result["turns"], result["killed_after_turn"]),
        *beside(result),
        *legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
