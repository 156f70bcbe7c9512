"""Orders whose row and message are one transaction: either both or neither, whatever crashes.

Run it:   python -m samples.order_service
          pump run samples.order_service:app --until-empty
          (the shop, which is killed between commit and send; then the service, which sends what
          it finds in the outbox, and ships; in between, `pump outbox` shows it)
On PostgreSQL, all with SHOP_DATABASE=postgresql+psycopg://localhost/shop before them.
Expect:   order 1: placed
          order 2: card declined, rolled back
          the shop dies, and has sent nothing
          order 1: shipped
          (of order 2 there is neither a row nor a message)
"""

import asyncio
import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from handlers import Handler, OnceOnly, SqlAlchemyInbox
from pump import App, Command, Subscription
from pump.outbox import PostgresOutbox, SqliteOutbox

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite+aiosqlite:///shop.db")
on_server = DATABASE.startswith("postgresql")
outbox = PostgresOutbox(DATABASE.replace("+psycopg", "")) if on_server else SqliteOutbox("shop.db")
engine = create_async_engine(DATABASE)
sessions, inbox = async_sessionmaker(engine), SqlAlchemyInbox(engine)
app = App("local://.pumphouse/shop", outbox=outbox, middleware=[OnceOnly(inbox)])


class Table(DeclarativeBase): ...


class Order(Table):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="placed")


class ShipOrder(Command):
    number: int


@app.handler
class ShipOrderHandler(Handler[ShipOrder]):
    async def handle(self, request: ShipOrder) -> None:
        async with inbox.session() as session:  # Shipped and marked as handled: one transaction.
            (await session.get_one(Order, request.number)).status = "shipped"
        print(f"order {request.number}: shipped", flush=True)


app.subscribe(Subscription(queue="shipping", request=ShipOrder))


async def shop() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Table.metadata.create_all)
    async with app:
        for number, is_paid in ((1, True), (2, False)):
            async with sessions() as session:
                session.add(Order(number=number))
                await app.post(ShipOrder(number), transaction=session)
                await (session.commit() if is_paid else session.rollback())
            print(f"order {number}:", "placed" if is_paid else "card declined, rolled back")
        print("the shop dies, and has sent nothing", flush=True)
        os.kill(os.getpid(), 9)


if __name__ == "__main__":
    asyncio.run(shop())
