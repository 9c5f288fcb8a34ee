//! The SQL of the chapter on fencing, on SQLite: the statements are taken from the page.

use rusqlite::{Connection, named_params};
use stanchion::LockGuard;

use super::fencing::{a_stale_and_a_fresh_hold, token_of};
use super::pages;

const PAGE: &str = "docs/fencing.md";

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("somebody with a larger token has been here")]
    Stale,
    #[error("the lock mints no tokens")]
    NoToken,
    #[error(transparent)]
    Lost(#[from] stanchion::LeaseLost),
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

async fn add_interest(balance: i64) -> i64 {
    balance + balance / 100
}

async fn settle(db: &mut Connection, guard: &LockGuard, id: i64) -> Result<(), Stopped> {
    let token = guard
        .fencing_token()
        .ok_or(Stopped::NoToken)?
        .get()
        .cast_signed(); // below 2^53
    let claim = "UPDATE account SET fence = :token WHERE id = :id AND fence <= :token";
    if db.execute(claim, named_params! { ":token": token, ":id": id })? == 0 {
        return Err(Stopped::Stale);
    }
    let read = "SELECT balance FROM account WHERE id = :id";
    let balance: i64 = db.query_row(read, named_params! { ":id": id }, |row| row.get(0))?;
    // `run` gives up when the lock is lost; the token protects what was already on its way.
    let balance = guard.run(add_interest(balance)).await?;
    let write =
        "UPDATE account SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token";
    let params = named_params! { ":balance": balance, ":token": token, ":id": id };
    if db.execute(write, params)? == 0 {
        return Err(Stopped::Stale);
    }
    Ok(())
}

/// The statements of the page.
struct Statements {
    claim: String,
    write: String,
    fence: String,
}

/// A database with the page's tables and one account.
fn database() -> (Connection, Statements) {
    let [account, claim, write, table, fence] = pages::blocks_in(PAGE, "sql")
        .try_into()
        .expect("the page has five statements");
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(&account).unwrap();
    db.execute_batch(&table).unwrap();
    db.execute("INSERT INTO account (id, balance) VALUES (7, 1000)", [])
        .unwrap();
    (
        db,
        Statements {
            claim,
            write,
            fence,
        },
    )
}

fn balance(db: &Connection) -> i64 {
    db.query_row("SELECT balance FROM account WHERE id = 7", [], |row| {
        row.get(0)
    })
    .unwrap()
}

fn write(db: &Connection, sql: &Statements, token: i64, balance: i64) -> usize {
    let params = named_params! { ":balance": balance, ":token": token, ":id": 7 };
    db.execute(&sql.write, params).unwrap()
}

fn claim(db: &Connection, sql: &Statements, token: i64) -> usize {
    db.execute(&sql.claim, named_params! { ":token": token, ":id": 7 })
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_write_of_a_paused_holder_is_refused() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let (db, sql) = database();
    assert_eq!(write(&db, &sql, token_of(&new), 2000), 1);
    assert_eq!(write(&db, &sql, token_of(&old), 1), 0);
    assert_eq!(balance(&db), 2000);
    assert_eq!(
        write(&db, &sql, token_of(&new), 3000),
        1,
        "a hold may write twice"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_read_under_a_claim_cannot_be_changed_by_a_paused_holder() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let (db, sql) = database();
    // Without the claim the old holder's write would pass here: nobody with a larger token has written yet.
    assert_eq!(claim(&db, &sql, token_of(&new)), 1);
    let read = balance(&db);
    assert_eq!(write(&db, &sql, token_of(&old), 1), 0);
    assert_eq!(write(&db, &sql, token_of(&new), read + 1), 1);
    assert_eq!(balance(&db), 1001);
}

#[tokio::test(start_paused = true)]
async fn one_fence_for_many_rows_refuses_the_transaction_of_a_paused_holder() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let (mut db, sql) = database();
    let mut transaction = |token: i64| {
        let transaction = db.transaction().unwrap();
        let params = named_params! { ":name": "accounts", ":token": token };
        let current = transaction.execute(&sql.fence, params).unwrap() == 1;
        if current {
            transaction.commit().unwrap();
        }
        current
    };
    assert!(transaction(token_of(&old)), "the first ever");
    assert!(transaction(token_of(&new)));
    assert!(
        transaction(token_of(&new)),
        "several transactions of one hold"
    );
    assert!(!transaction(token_of(&old)));
}

#[tokio::test(start_paused = true)]
async fn the_program_stops_without_the_lock_and_works_with_it() {
    let (old, new) = a_stale_and_a_fresh_hold().await;
    let (mut db, _) = database();
    settle(&mut db, &new, 7).await.unwrap();
    assert_eq!(balance(&db), 1010);
    let refused = settle(&mut db, &old, 7).await;
    assert!(matches!(refused, Err(Stopped::Stale)), "{refused:?}");
    assert_eq!(balance(&db), 1010);
}
