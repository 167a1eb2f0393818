"""bench/models_chart.py - the tables of bench/results/models.md as a chart.

    python3 bench/models_chart.py        writes bench/results/models.svg

A group of bars for each table: how many times as fast as the best of PyTorch tc is, and as tc with a
kernel for each op; the scale is logarithmic, losses lie left of the line.
"""
import math
import os

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
LEFT, WIDTH, ROW, LEAST, MOST = 190, 480, 15, 0.5, 8.0
COLOURS = {"best / tc": "#06c", "apart / tc": "#bbb"}


def tables(text):
    """(title, [(network, {column: ratio})]) of each table."""
    title, columns, rows = "", None, []
    for line in text.splitlines() + [""]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            if rows:
                yield title, rows
            columns, rows = None, []
            title = line.lstrip("# ") if line.startswith("#") else title
        elif columns is None:
            columns = cells
        elif not line.startswith("| ---"):
            row = dict(zip(columns, cells))
            rows.append((cells[0], {k: float(row[k]) for k in COLOURS}))


def x_of(ratio):
    part = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LEFT + WIDTH * part


def chart(groups):
    out, y = [], 50
    for title, rows in groups:
        y += 22
        out.append(f"<text x='10' y='{y}' class='title'>{title}</text>")
        y += 8
        for name, ratios in rows:
            out.append(f"<text x='{LEFT - 8}' y='{y + 11}' text-anchor='end'>{name}</text>")
            for i, (column, colour) in enumerate(COLOURS.items()):
                x, one = x_of(ratios[column]), x_of(1)
                out.append(f"<rect x='{min(x, one):.1f}' y='{y + 6 * i + 1}' height='6' "
                           f"width='{abs(x - one):.1f}' fill='{colour}'/>")
            out.append(f"<text x='{x_of(max(max(ratios.values()), 1)) + 5:.1f}' y='{y + 11}'>"
                       f"{ratios['best / tc']:.2f}</text>")
            y += ROW
    lines = "".join(f"<path d='M{x_of(r):.1f} 44V{y}'/><text x='{x_of(r):.1f}' y='38' "
                    f"text-anchor='middle'>{r:g}</text>" for r in (0.5, 1, 2, 4, 8))
    keys = ("<text x='10' y='18'>times as fast as: <tspan fill='#06c'>the best of PyTorch</tspan>, "
            "<tspan fill='#888'>tc with a kernel for each op</tspan></text>")
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {LEFT + WIDTH + 60} {y + 10}'>\n"
            "<style>text { font: 11px sans-serif } .title { font-weight: bold }\n"
            "path { stroke: #ddd } svg { background: #fff }</style>\n"
            + keys + lines + "\n" + "\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    with open(os.path.join(HERE, "models.md")) as file:
        groups = list(tables(file.read()))
    with open(os.path.join(HERE, "models.svg"), "w") as file:
        file.write(chart(groups))
