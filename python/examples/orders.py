"""Orders that are paid for, on a SiftFS mount: ``orders.py DIR``. Tickets, a section and a publish."""

import asyncio
import os
import sys

import siftfs


async def main(directory: str) -> None:
    def path(name: str) -> str:
        return os.path.join(directory, name)

    # 64 orders, each in its place in the order of all, and durable with one write and one flush.
    with open(path("orders"), "wb") as orders:
        for number in range(64):
            orders.write(b"order %2d\n" % number)
            ticket = siftfs.stage(orders)
    await ticket

    # Two files, and a crash never shows one of them alone.
    with open(path("buyer"), "w+") as buyer, open(path("seller"), "w+") as seller:
        with siftfs.atomic(buyer, seller):
            buyer.write("ten less\n")
            seller.write("ten more\n")

    # And two names.
    with open(path("table.new"), "w") as table, open(path("index.new"), "w") as index:
        table.write("a table\n")
        index.write("its index\n")
    siftfs.publish([(path("table.new"), path("table")), (path("index.new"), path("index"))])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
