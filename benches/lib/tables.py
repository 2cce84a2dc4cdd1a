"""Tables of the documents, written from the results between two comments, as the pictures are."""

import re
import statistics

MIB = 1 << 20
STORES = {"minio": "MinIO", "seaweedfs": "SeaweedFS"}


def replace(path, name, lines):
    """Replaces what lies between `<!-- benches/draw: NAME -->` and `<!-- end -->`."""
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- benches/draw: {name} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(text):
        raise ValueError(f"{path} has no place for {name}")
    block = begin + "\n" + "\n".join(lines) + "\n\n" + end
    path.write_text(pattern.sub(lambda _: block, text), encoding="utf-8")


def size(number):
    """Bytes in words: 64 MiB, 12 GiB."""
    return f"{number / MIB:.0f} MiB" if number < 1 << 30 else f"{number / (1 << 30):.0f} GiB"


def middle(rows, value, **wanted):
    """Median of a value in the rows that match; None if there are none."""
    found = [row[value] for row in rows if value in row and all(row.get(k) == v for k, v in wanted.items())]
    return statistics.median(found) if found else None


def machine(head, rows, limit=""):
    """The machine and the data. A bench may end before the rounds that were asked for (--at-most)."""
    last = {}
    for row in rows:
        work = row.get("work") or row["link"]
        last[work] = max(row["round"], last.get(work, 0))
    rounds = min(last.values()) + 1
    return (f"{head['date'].replace('T', ' ').replace('Z', ' UTC')}, {head['cores']} cores ({head['cpu']}), "
            f"{head['ram'] / (1 << 30):.0f} GiB, load {head['load']:.0f} at the start, "
            f"{limit}{head['size'] // MIB} MiB, "
            f"{rounds} {'round' if rounds == 1 else 'rounds'}, seed {head['seed']}"
            f"{', store: ' + STORES[head['store']] if 'store' in head else ''}.")


def peers(results):
    """One line per kind of work: ours, the best peer in each respect, and the ratios."""
    head = results[0][0]
    lines = [machine(head, [row for _, rows in results for row in rows]), "",
             "| work | wall s | best peer | ratio | CPU s/GiB | best peer | ratio | peak MiB | best peer |",
             "|---|---:|---|---:|---:|---|---:|---:|---|"]
    for head, rows in results:
        what = head["bench"].split("-")[0]
        for work in dict.fromkeys(row["work"] for row in rows):
            mine = [row for row in rows if row["work"] == work]
            cells = [f"{what}: {work}"]
            for value, shown in (("wall", "{:.2f}".format), ("cpu_gib", "{:.2f}".format), ("memory", lambda v: f"{v / MIB:.0f}")):
                ours = middle(mine, value, who="ours")
                others = {who: middle(mine, value, who=who) for who in {r["who"] for r in mine} if not who.startswith("ours")}
                if ours is None or not others:
                    cells += ["", ""] + ([""] if value != "memory" else [])
                    continue
                best = min(sorted(others), key=others.get)
                cells += [shown(ours), f"{best} {shown(others[best])}"]
                if value != "memory":
                    cells.append(f"{ours / others[best]:.2f}")
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def links(head, rows):
    """What auto took on each link, beside the best fixed choice. Links without either are left out."""
    lines = [machine(head, rows, "up to "), "",
             "| link | fastest codec | s | auto s | ratio | strongest as fast | MB | auto MB | ratio | auto used |",
             "|---|---|---:|---:|---:|---|---:|---:|---:|---|"]
    start = len(lines)
    for link in dict.fromkeys(row["link"] for row in rows):
        here = [row for row in rows if row["link"] == link]
        fixed = {who: (middle(here, "wall", who=who), middle(here, "stored", who=who)) for who in {r["who"] for r in here} - {"auto"}}
        auto = middle(here, "wall", who="auto"), middle(here, "stored", who="auto")
        if not fixed or auto[0] is None:
            continue
        best = min(fixed, key=lambda who: fixed[who][0])
        strong = min((who for who in fixed if fixed[who][0] <= 1.02 * fixed[best][0]), key=lambda who: fixed[who][1])
        used = next((row["codecs"] for row in here if row["who"] == "auto" and "codecs" in row), "")
        lines.append(f"| {link} | {best} | {fixed[best][0]:.2f} | {auto[0]:.2f} | {auto[0] / fixed[best][0]:.2f} | {strong} "
                     f"| {fixed[strong][1] / 1e6:.0f} | {auto[1] / 1e6:.0f} | {auto[1] / fixed[strong][1]:.3f} | {used} |")
    return lines if len(lines) > start else []


def instructions(before, now):
    """Instructions per byte of each kind of work: an older build, this one, and the peers."""
    def found(rows, work, who):
        return middle(rows, "per_byte", work=work, who=who)

    def shown(value):
        return "" if value is None else f"{value:.2f}"

    lines = [f"{now[0]['date'][:10]}, seed {now[0]['seed']}.", "",
             "| work | before | now | peer |", "|---|---:|---:|---:|"]
    for work in dict.fromkeys(row["work"] for row in now[1] if "per_byte" in row):
        peers = {row["who"]: row["per_byte"] for row in now[1] if row["work"] == work and row["who"] != "ours" and "per_byte" in row}
        others = ", ".join(f"{who} {shown(value)}" for who, value in peers.items())
        lines.append(f"| {work} | {shown(found(before[1], work, 'ours'))} | {shown(found(now[1], work, 'ours'))} | {others} |")
    return lines


def scale(head, rows, part, names):
    """Wall seconds and peak memory of each kind of work, by amount."""
    mine = [row for row in rows if row["work"] == part and "wall" in row]
    amounts = sorted({row["amount"] for row in mine})
    if not amounts:
        return []
    label = size if part == "bytes" else "{:,}".format
    lines = ["| | " + " | ".join(f"{label(n)}: s | MiB" for n in amounts) + " |", "|---" + "|---:|---:" * len(amounts) + "|"]
    for what in names:
        cells = []
        for amount in amounts:
            wall, memory = (middle(mine, value, amount=amount, who=what) for value in ("wall", "memory"))
            cells += ["", ""] if wall is None else [f"{wall:.2f}", f"{memory / MIB:.0f}"]
        if any(cells):
            lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return lines


def chunks(head, rows):
    lines = [f"{head['date'][:10]}, {head['cores']} cores, load {head['load']:.0f} at the start.", "",
             "| data | chunk size | s | peak MiB | objects | billed requests |", "|---:|---:|---:|---:|---:|---:|"]
    for work in ("small", "large"):
        for chunk in dict.fromkeys(row["chunk"] for row in rows):
            size, wall, memory, objects, billed = (middle(rows, value, work=work, chunk=chunk)
                                                   for value in ("bytes", "wall", "memory", "objects", "billed"))
            if size:
                lines.append(f"| {size / MIB:.0f} MiB | {chunk} | {wall:.2f} | {memory / MIB:.0f} | {objects:.0f} | {billed:.0f} |")
    return lines
