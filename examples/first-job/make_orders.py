"""Makes `orders.csv`. Run again, it makes the same file: the numbers come from a generator that begins alike."""

import csv
import datetime
from pathlib import Path

PRODUCTS = {"carrots": 349, "clover": 199, "dandelion": 275, "hay": 1290, "straw": 890, "water bottle": 1595}


def numbers(state=20260101):
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def main():
    draw = numbers()
    first = datetime.date(2026, 1, 1)
    with open(Path(__file__).with_name("orders.csv"), "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["day", "product", "pieces", "price"])
        for order in range(480):
            product = sorted(PRODUCTS)[next(draw) % len(PRODUCTS)]
            cents = PRODUCTS[product] + next(draw) % 50
            out.writerow([first + datetime.timedelta(days=order // 8), product, 1 + next(draw) % 12, f"{cents / 100:.2f}"])


if __name__ == "__main__":
    main()
