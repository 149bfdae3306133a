//! What an administrator declares once: which fields have an index, and which documents expire. Emulators have neither.

use serde_json::{Value, json};

/// What the four collections have in common: which they are, after the prefix.
const COLLECTIONS: [&str; 4] = ["Likes", "Shards", "Batches", "Quarantine"];

/// The collection, after the prefix, whose documents expire, and the field that says when.
pub const TTL: (&str, &str) = ("Batches", "expireAt");

/// The collection, after the prefix, and the field of the one index that is needed.
pub const INDEX: (&str, &str) = ("Likes", "cell");

/// The content of a `firestore.indexes.json`: no field of the collections has an index but [`INDEX`], because an index
/// entry on a growing value (a time, an order) caps a collection at 500 writes a second; [`TTL`] expires, without an index.
///
/// Exemptions hold for every collection of the name in the database. `parts`, which continues large poison, is left
/// alone for that reason: an application may well have a collection of that name.
#[must_use]
pub fn index_config(prefix: &str) -> Value {
    let none = json!([]);
    let mut overrides: Vec<Value> = COLLECTIONS
        .iter()
        .map(|name| json!({ "collectionGroup": format!("{prefix}{name}"), "fieldPath": "*", "indexes": none }))
        .collect();
    overrides.push(json!({
        "collectionGroup": format!("{prefix}{}", INDEX.0),
        "fieldPath": INDEX.1,
        "indexes": [{ "order": "ASCENDING", "queryScope": "COLLECTION" }],
    }));
    overrides.push(json!({
        "collectionGroup": format!("{prefix}{}", TTL.0),
        "fieldPath": TTL.1,
        "ttl": true,
        "indexes": none,
    }));
    json!({ "indexes": [], "fieldOverrides": overrides })
}

/// The same as commands for a shell, each safe to run again.
#[must_use]
pub fn setup_commands(project: &str, database: &str, prefix: &str) -> Vec<String> {
    let place = |collection: &str| {
        format!("--collection-group='{prefix}{collection}' --database='{database}' --project='{project}'")
    };
    let mut commands: Vec<String> = COLLECTIONS
        .iter()
        .map(|name| format!("gcloud firestore indexes fields update '*' {} --disable-indexes", place(name)))
        .collect();
    commands.push(format!(
        "gcloud firestore indexes fields update {} {} --index=order=ascending",
        INDEX.1,
        place(INDEX.0)
    ));
    commands.push(format!("gcloud firestore indexes fields update {} {} --disable-indexes", TTL.1, place(TTL.0)));
    commands.push(format!("gcloud firestore fields ttls update {} {} --enable-ttl", TTL.1, place(TTL.0)));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cell_has_an_index_and_only_batch_keys_expire() {
        let config = index_config("hotcount");
        let overrides = config["fieldOverrides"].as_array().expect("a list").clone();
        let indexed: Vec<_> = overrides.iter().filter(|o| o["indexes"] != json!([])).collect();
        assert_eq!(indexed.len(), 1);
        assert_eq!(indexed[0]["collectionGroup"], "hotcountLikes");
        assert_eq!(indexed[0]["fieldPath"], "cell");
        let expiring: Vec<_> = overrides.iter().filter(|o| o["ttl"] == json!(true)).collect();
        assert_eq!(expiring.len(), 1);
        assert_eq!(expiring[0]["collectionGroup"], "hotcountBatches");
        assert_eq!(overrides.iter().filter(|o| o["fieldPath"] == "*").count(), 4);
    }

    #[test]
    fn the_commands_name_the_project_the_database_and_every_collection() {
        let commands = setup_commands("demo", "(default)", "stars");
        assert!(commands.iter().all(|c| c.contains("--project='demo'") && c.contains("--database='(default)'")));
        for name in COLLECTIONS {
            assert!(commands.iter().any(|c| c.contains(&format!("'stars{name}'"))), "{name}");
        }
    }
}
