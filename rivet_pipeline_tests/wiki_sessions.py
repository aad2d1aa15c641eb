"""Sessions of two other teams, written to hold the rules of the wiki's miner against what they were not made for.

A kitchen robot's firmware, and a bakery's order system (partly in Spanish and Japanese). Each is a day, a title, the
folder it ran in and what was said: `u` a person, `a` an agent, `t` a command with its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from rivet_pipeline.db.pool import Connection

_ROLES = {"u": "user", "a": "assistant", "t": "tool"}


@dataclass(frozen=True, slots=True)
class Session:
    """One session; its messages are two minutes apart."""

    day: str
    title: str
    folder: str
    said: tuple[tuple[str, str], ...]


ROBOT = (
    Session(
        "2026-05-04",
        "Gripper calibration: at every boot or once",
        "whisk",
        (
            ("u", "The gripper crushed two eggs this morning. What is going on with the force sensor?"),
            ("a", "The force sensor probably has a loose connector. I would swap the cable."),
            ("u", "No, the cable is new. Measure first."),
            ("t", "python tools/force.py --zero → drift 1.9 N after 40 minutes"),
            ("a", "You're right. The zero point of the gripper drifts by 1.9 N because the sensor warms up to 48 °C."),
            ("a", "I propose to calibrate the gripper at every boot, with the jaws open, which takes 6 seconds."),
            ("u", "Agreed, do that."),
            ("u", "Decision, 4 May: the gripper is calibrated at every boot, and its force limit is 12 N."),
            ("t", 'git commit -qam "Calibrate the gripper at every boot" && git push -q → main 4be1f20'),
            ("u", "From now on no blocking calls in the control loop, ever."),
        ),
    ),
    Session(
        "2026-05-19",
        "Gripper calibration moves to the factory",
        "whisk",
        (
            ("u", "The boot calibration takes too long for the cooks. They switch the robot on and off all day."),
            ("a", "The factory can store the temperature curve of each gripper in its EEPROM, 64 bytes are enough."),
            (
                "u",
                "Good. The decision of 4 May is reversed: we drop the boot calibration, the factory stores the curve.",
            ),
            ("a", "Then the firmware reads the curve once and corrects the gripper's zero point every 100 ms."),
            ("t", 'git commit -qm "Read the temperature curve of the gripper from EEPROM" → main 77aa012'),
            ("u", "The force limit of the gripper stays at 12 N."),
            ("a", "I noted it in docs/gripper.md."),
        ),
    ),
    Session(
        "2026-05-21",
        "Arm watchdog: resets in the middle of a stir",
        "whisk",
        (
            ("u", "The arm stops in the middle of a stir and starts again. Three times today."),
            ("a", "That sounds like the gripper driver blocking the bus."),
            ("u", "Wrong, the gripper was not even mounted."),
            ("a", "The watchdog of the arm resets the controller when the trajectory planner needs more than 50 ms."),
            ("a", "I suggest a watchdog window of 200 ms for the arm, and a warning in the log from 80 ms on."),
            ("u", "Yes, go ahead."),
            ("t", 'git commit -qm "Arm watchdog: a window of 200 ms, a warning from 80 ms on" → main 90cd3ee'),
            ("u", "Thanks. Tomorrow we look at the camera."),
        ),
    ),
    Session(
        "2026-06-02",
        "Arm trajectory: smoother stirring",
        "whisk",
        (
            ("u", "The arm trajectory must never exceed 1.2 m/s near a person."),
            ("a", "The trajectory uses cubic splines, sampled every 10 ms."),
            ("u", "We chose quintic splines for the arm trajectory, because the jerk at the ends spills the soup."),
            ("a", "Fine. The arm trajectory is sampled every 5 ms then."),
            ("t", 'git commit -qm "Quintic splines for the arm trajectory" → error: nothing to commit'),
            ("t", 'git commit -qam "Quintic splines for the arm trajectory" → main a10b77c'),
            ("u", "Lovely."),
        ),
    ),
)

BAKERY = (
    Session(
        "2026-03-02",
        "Order cutoff for next-day bread",
        "ovenbook",
        (
            ("u", "Customers order bread at midnight and expect it at six. We need an order cutoff."),
            ("a", "The order cutoff could be 18:00, that leaves the night shift two hours to plan the dough."),
            ("u", "Decided: the order cutoff is 18:00, and later orders move to the day after."),
            ("t", 'git commit -qm "Order cutoff at 18:00" → main 1f0c2aa'),
            ("a", "The order form shows the cutoff as a countdown, and the API answers 422 after it."),
            ("u", "Please always show prices with VAT."),
        ),
    ),
    Session(
        "2026-04-13",
        "Order cutoff is too early for cafés",
        "ovenbook",
        (
            ("u", "The cafés complain: they know what they need only at eight."),
            ("a", "The dough for cafés is mixed at 21:30, so a later cutoff is possible for them."),
            ("u", "Decided: the order cutoff is 20:00, and later orders move to the day after."),
            ("t", 'git commit -qm "Order cutoff at 20:00" → main 5ab9c01'),
            ("a", "Deployed."),
            ("u", "Good."),
        ),
    ),
    Session(
        "2026-03-09",
        "Database backup of the shop: nightly dump to the NAS",
        "ovenbook",
        (
            ("u", "There is no backup of the shop database at all."),
            ("a", "I propose a nightly pg_dump of the shop database at 03:10 to nas01, kept for 30 days."),
            ("u", "OK, do it."),
            ("t", 'git commit -qm "Nightly backup of the shop database to nas01 with pg_dump" → main 0c77d1e'),
            ("a", "The backup timer is shop-backup.timer, and pg_dump writes to /mnt/nas01/shop."),
            ("u", "Great."),
        ),
    ),
    Session(
        "2026-04-20",
        "Shop backups: restore test failed",
        "ovenbook",
        (
            ("u", "I tried to restore last night's dump and it stopped half way."),
            ("a", "The backup in /mnt/nas01/shop is cut off because nas01 was full since 11 April."),
            ("u", "Then keep 14 days of backups only, not 30, and alert when shop-backup.timer fails."),
            ("t", 'git commit -qm "Shop backup: keep 14 days, alert when pg_dump to nas01 fails" → main 9e8d7c6'),
            ("a", "A restore of the shop database now takes 4 minutes, checked with pg_restore."),
            ("u", "Thank you."),
        ),
    ),
    Session(
        "2026-05-06",
        "Pedidos duplicados en la web de la panadería",
        "ovenbook",
        (
            ("u", "Hay pedidos duplicados desde el lunes. ¿Puedes mirar qué pasa?"),
            ("a", "Creo que es la impresora de la cocina, que imprime dos veces."),
            ("u", "No, no es la impresora: en la base de datos están dos veces."),
            (
                "a",
                (
                    "Tienes razón. "
                    "La causa de los pedidos duplicados es que la web reenvía el formulario cuando la red falla."
                ),
            ),
            (
                "a",
                (
                    "Propongo una clave única por pedido, "
                    "que el servidor guarda 24 horas para rechazar los pedidos duplicados."
                ),
            ),
            ("u", "De acuerdo, adelante."),
            (
                "u",
                (
                    "Decisión del 6 de mayo: "
                    "cada pedido lleva una clave única y los pedidos duplicados se rechazan con 409."
                ),
            ),
            ("t", 'git commit -qm "Rechaza pedidos duplicados con una clave única" → main 31bb0fe'),
            ("u", "A partir de ahora, los mensajes a los clientes siempre en español y en catalán."),
            ("a", "Hecho, mañana lo reviso otra vez."),
        ),
    ),
    Session(
        "2026-05-27",
        "Pedidos duplicados: la clave única molesta a los bares",
        "ovenbook",
        (
            ("u", "Los bares piden dos veces lo mismo a propósito, y la web los rechaza."),
            ("a", "Los pedidos iguales de un bar llegan con más de diez minutos de diferencia, según los registros."),
            (
                "u",
                (
                    "La decisión del 6 de mayo queda sin efecto: "
                    "eliminamos la clave única y avisamos de los pedidos duplicados."
                ),
            ),
            ("t", 'git commit -qm "Avisa de pedidos duplicados en vez de rechazarlos" → main 66cde10'),
            ("a", "El aviso de pedidos duplicados sale cuando dos pedidos iguales llegan en menos de cinco minutos."),
            ("u", "Perfecto."),
        ),
    ),
    Session(
        "2026-06-08",
        "注文締切の変更",
        "ovenbook",
        (
            ("u", "土曜日の注文締切が早すぎるとお客様に言われました。"),
            ("a", "たぶん金曜の夜の仕込みを遅らせれば大丈夫です。"),
            ("u", "決定:土曜日の注文締切は21時にします。"),
            ("a", "注文締切の設定はconfig/cutoff.tomlにあります。"),
            ("u", "ありがとうございます。"),
        ),
    ),
)


def store_sessions(connection: Connection, sessions: tuple[Session, ...]) -> None:
    """Puts sessions into a store as capture would, long enough ago that their leaves are due."""
    for number, session in enumerate(sessions):
        row = connection.execute(
            """
            INSERT INTO ros_conversations (session_key, agent, day, title, settings, updated_at)
            VALUES (%s, 'claude', %s, %s, %s, now() - interval '9 days') RETURNING id
            """,
            [f"held-out:{session.day}:{number}", session.day, session.title, Jsonb({"cwd": f"/srv/{session.folder}"})],
        ).fetchone()
        assert row is not None
        connection.execute(
            "INSERT INTO ros_tags (entity_kind, entity_id, conversation_id, tag_key, tag_value, status, source, "
            "proposed_by) VALUES ('conversation', %(id)s, %(id)s, 'project', %(folder)s, 'accepted', 'rule', 'rule')",
            {"id": row["id"], "folder": session.folder},
        )
        began = datetime.fromisoformat(f"{session.day}T09:00:00").replace(tzinfo=UTC)
        for place, (voice, text) in enumerate(session.said):
            command, arrow, result = text.partition(" → ")
            connection.execute(
                """
                INSERT INTO ros_messages (conversation_id, event_id, agent, channel, role, content, tool_name,
                                          tool_args, tool_result, metadata, created_at)
                VALUES (%s, %s, 'claude', 'test', %s, %s, %s, %s, %s, '{}', %s)
                """,
                [
                    row["id"],
                    str(place),
                    _ROLES[voice],
                    "" if arrow else text,
                    "Bash" if arrow else None,
                    Jsonb({"command": command}) if arrow else None,
                    result or None,
                    began + timedelta(minutes=2 * place),
                ],
            )
