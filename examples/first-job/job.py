"""A small real job: reads orders from a CSV file, writes a report as JSON, and says on which kernel it ran.

    python3 job.py [ORDERS] [REPORT]

Both default to a file in the working directory: `orders.csv` and `report.json`.
"""

import csv
import json
import platform
import statistics
import sys
from collections import defaultdict
from decimal import Decimal


def read_orders(path):
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                yield row["day"], row["product"], int(row["pieces"]), Decimal(row["price"])
            except (KeyError, ValueError, ArithmeticError) as error:
                sys.exit(f"{path}, line {number}: {error!r} in {row}")


def report(orders):
    by_product, by_day, totals = defaultdict(lambda: [0, Decimal(0)]), defaultdict(Decimal), []
    for day, product, pieces, price in orders:
        total = pieces * price
        totals.append(total)
        by_day[day] += total
        by_product[product][0] += pieces
        by_product[product][1] += total
    best_day = max(sorted(by_day), key=by_day.__getitem__)
    return {
        "orders": len(totals),
        "revenue": f"{sum(totals):.2f}",
        "median_order": f"{statistics.median(totals):.2f}",
        "best_day": {"day": best_day, "revenue": f"{by_day[best_day]:.2f}"},
        "products": {
            name: {"pieces": pieces, "revenue": f"{revenue:.2f}"}
            for name, (pieces, revenue) in sorted(by_product.items())
        },
    }


def main():
    orders, out = (sys.argv[1:] + ["orders.csv", "report.json"][len(sys.argv) - 1 :])[:2]
    result = report(read_orders(orders))
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    print(f"{result['orders']} orders, revenue {result['revenue']}, best day {result['best_day']['day']}")
    print(f"report written to {out}")
    print(f"kernel {platform.release()} on {platform.machine()}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
