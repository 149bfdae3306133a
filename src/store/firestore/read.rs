//! Counts and posts, read at one time.

use super::address::{CELL_DIGITS, MembersBy, cell_post};
use super::document::{Layout, read_shard, text, text_of, undecidable, value};
use super::{Firestore, failure};
use crate::store::{Depth, ErrorClass, StoreError, Tally};
use futures::future::try_join_all;
use gcloud_sdk::google::firestore::v1::structured_aggregation_query::aggregation::{Count, Operator as Aggregate};
use gcloud_sdk::google::firestore::v1::structured_aggregation_query::{Aggregation, QueryType as Aggregated};
use gcloud_sdk::google::firestore::v1::structured_query::composite_filter::Operator as Composite;
use gcloud_sdk::google::firestore::v1::structured_query::field_filter::Operator;
use gcloud_sdk::google::firestore::v1::structured_query::filter::FilterType;
use gcloud_sdk::google::firestore::v1::structured_query::{
    CollectionSelector, CompositeFilter, Direction, FieldFilter, FieldReference, Filter, Order, Projection,
};
use gcloud_sdk::google::firestore::v1::value::ValueType;
use gcloud_sdk::google::firestore::v1::{
    ArrayValue, BatchGetDocumentsRequest, Cursor, Document, RunAggregationQueryRequest, RunQueryRequest,
    StructuredAggregationQuery, StructuredQuery, Value, run_aggregation_query_request, run_query_request,
};
use gcloud_sdk::prost_types::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The name under which a count comes back.
const ALIAS: &str = "members";

/// Sorts after every shard number and after `repair`, and is legal as a document id.
const AFTER_ALL_SHARDS: &str = "~";

impl Firestore {
    /// Shards and members are read at one time, which is asked for first: a commit is at that time in both or in
    /// neither. The read time of a query's answers would not do, for they may be later than what was read.
    pub(super) async fn tally_of(&self, post: &str, depth: Depth) -> Result<Tally, StoreError> {
        let read_time = match depth {
            Depth::Shards => None,
            Depth::ShardsAndMembers => Some(self.now().await?),
        };
        let mut tally = sum(self.layout, &self.read_shards(post, read_time).await?)?;
        if let Some(read_time) = read_time {
            tally.members = Some(self.count_members(post, read_time).await?);
        }
        Ok(tally)
    }

    /// All shard documents of a post, the repair shard included.
    pub(super) async fn read_shards(&self, post: &str, at: Option<Timestamp>) -> Result<Vec<Document>, StoreError> {
        let query = StructuredQuery { from: collection(self.address.shards(), false), ..Default::default() };
        self.query(self.address.post(post), query, at, "read shards").await
    }

    /// The database's time now.
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let request = BatchGetDocumentsRequest {
            database: self.address.database_path(),
            documents: vec![self.address.nothing()],
            ..Default::default()
        };
        let answers = self.rpc.batch_get(request).await.map_err(|status| failure((status, "ask for the time")))?;
        self.bill.read(1);
        let read_time = answers.into_iter().find_map(|answer| answer.read_time);
        read_time.ok_or_else(|| odd("a read came without its read time"))
    }

    pub(super) async fn count_members(&self, post: &str, read_time: Timestamp) -> Result<u64, StoreError> {
        let query = StructuredQuery {
            from: collection(self.address.likes(), false),
            r#where: Some(match (self.address.members_by(), cell_post(post)) {
                (MembersBy::Scan, Cow::Borrowed(post)) => {
                    both([is("post", Operator::Equal, text(post.to_owned())), is_liked()])
                }
                // An id that is too long for its cell is too long for any query.
                (_, post) => {
                    let cells = CELL_DIGITS.iter().map(|digit| text(format!("{digit}:{post}"))).collect();
                    is("cell", Operator::In, value(ValueType::ArrayValue(ArrayValue { values: cells })))
                }
            }),
            ..Default::default()
        };
        let request = RunAggregationQueryRequest {
            parent: self.address.root(),
            query_type: Some(run_aggregation_query_request::QueryType::StructuredAggregationQuery(
                StructuredAggregationQuery {
                    aggregations: vec![Aggregation {
                        alias: ALIAS.to_owned(),
                        operator: Some(Aggregate::Count(Count { up_to: None })),
                    }],
                    query_type: Some(Aggregated::StructuredQuery(query)),
                },
            )),
            consistency_selector: Some(run_aggregation_query_request::ConsistencySelector::ReadTime(read_time)),
            ..Default::default()
        };
        let answers = self.rpc.run_aggregation_query(request).await.map_err(|s| failure((s, "count members")))?;
        let number = answers.iter().filter_map(|answer| answer.result.as_ref()).find_map(|result| {
            match result.aggregate_fields.get(ALIAS)?.value_type.as_ref()? {
                ValueType::IntegerValue(number) => u64::try_from(*number).ok(),
                _ => None,
            }
        });
        let number = number.ok_or_else(|| odd("a count of members came without a number"))?;
        self.bill.counted(number);
        Ok(number)
    }

    /// Skips from post to post over the names of all shard documents: one read a post, however many shards it has.
    pub(super) async fn posts_by_shards(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let posts = format!("{}/posts/", self.address.root());
        let mut from = after.map(|post| self.address.shard(post, AFTER_ALL_SHARDS));
        let mut found = Vec::new();
        while found.len() < limit {
            let query = StructuredQuery {
                select: Some(Projection { fields: vec![by_name()] }),
                from: collection(self.address.shards(), true),
                order_by: vec![ascending(by_name())],
                start_at: from.take().map(|name| Cursor { values: vec![reference(name)], before: false }),
                limit: Some(1),
                ..Default::default()
            };
            let documents = self.query(self.address.root(), query, None, "list posts").await?;
            let Some(document) = documents.into_iter().next() else { break };
            match document.name.strip_prefix(&posts).map(|rest| rest.split('/').collect::<Vec<_>>()).as_deref() {
                Some([post, shards, _]) if *shards == self.address.shards() => {
                    from = Some(self.address.shard(post, AFTER_ALL_SHARDS));
                    found.push((*post).to_owned());
                }
                // A collection of this name somewhere else is not ours.
                _ => from = Some(document.name),
            }
        }
        Ok(found)
    }

    /// Skips from post to post in each of the sixteen ranges of `cell`, and merges them: at most sixteen reads a post.
    /// Only memberships that are liked have a `cell`, so a post with nothing but tombstones is not found.
    pub(super) async fn posts_by_members(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        if self.address.members_by() == MembersBy::Scan {
            return self.scan_posts(after, limit).await;
        }
        let after = cell_post(after.unwrap_or("")).into_owned();
        let mut heads = try_join_all(CELL_DIGITS.iter().map(|digit| self.next_in_cell(*digit, &after))).await?;
        while let Some((place_in_cell, post)) = heads.iter().flatten().min().cloned() {
            found.push(post);
            if found.len() == limit {
                break;
            }
            let here = |place: &usize| heads[*place].as_ref().is_some_and(|(at, _)| *at == place_in_cell);
            let places: Vec<usize> = (0..heads.len()).filter(here).collect();
            let behind = places.iter().map(|place| self.next_in_cell(CELL_DIGITS[*place], &place_in_cell));
            let next = try_join_all(behind).await?;
            for (place, head) in places.into_iter().zip(next) {
                heads[place] = head;
            }
        }
        Ok(found)
    }

    /// The posts of all liked memberships, read once.
    async fn scan_posts(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let query = StructuredQuery {
            select: Some(Projection { fields: vec![by("cell"), by("post")] }),
            from: collection(self.address.likes(), false),
            r#where: Some(is_liked()),
            ..Default::default()
        };
        let mut posts = BTreeSet::new();
        for document in self.query(self.address.root(), query, None, "list posts").await? {
            let Some(post) = post_of(&document) else { continue };
            if after.is_none_or(|after| post > after) && !posts.contains(post) {
                posts.insert(post.to_owned());
            }
        }
        Ok(posts.into_iter().take(limit).collect())
    }

    /// The first post behind `after` that has a liked membership whose id begins with `digit`, and how it stands there.
    async fn next_in_cell(&self, digit: char, after: &str) -> Result<Option<(String, String)>, StoreError> {
        let prefix = format!("{digit}:");
        let range = both([
            // Strictly greater is the next post, also when its id begins with the whole of this one's.
            is("cell", Operator::GreaterThan, text(format!("{prefix}{after}"))),
            // `;` is the byte after `:`.
            is("cell", Operator::LessThan, text(format!("{digit};"))),
        ]);
        let query = StructuredQuery {
            select: Some(Projection { fields: vec![by("cell"), by("post")] }),
            from: collection(self.address.likes(), false),
            r#where: Some(range),
            order_by: vec![ascending(by("cell"))],
            limit: Some(1),
            ..Default::default()
        };
        let documents = self.query(self.address.root(), query, None, "list posts").await?;
        let Some(document) = documents.first() else { return Ok(None) };
        let cell =
            text_of(document, "cell").map_err(|_| odd("a membership was found by a cell that it does not have"))?;
        let place = cell.strip_prefix(&prefix);
        Ok(place.map(|at| (at.to_owned(), post_of(document).unwrap_or(at).to_owned())))
    }

    /// All documents of a query, at one time where one is given.
    pub(super) async fn query(
        &self,
        parent: String,
        query: StructuredQuery,
        read_time: Option<Timestamp>,
        tried: &'static str,
    ) -> Result<Vec<Document>, StoreError> {
        let request = RunQueryRequest {
            parent,
            query_type: Some(run_query_request::QueryType::StructuredQuery(query)),
            consistency_selector: read_time.map(run_query_request::ConsistencySelector::ReadTime),
            ..Default::default()
        };
        let answers = self.rpc.run_query(request).await.map_err(|status| failure((status, tried)))?;
        let documents: Vec<Document> = answers.into_iter().filter_map(|answer| answer.document).collect();
        self.bill.read(documents.len());
        Ok(documents)
    }
}

/// The tally of shard documents.
pub(super) fn sum(layout: Layout, shards: &[Document]) -> Result<Tally, StoreError> {
    let mut tally = Tally { shards: shards.len() as u64, ..Tally::default() };
    let mut faults = Vec::new();
    for shard in shards {
        match read_shard(layout, shard) {
            Ok(count) => tally.count = tally.count.saturating_add(count),
            Err(fault) => faults.push(undecidable(0, &shard.name, fault)),
        }
    }
    if faults.is_empty() { Ok(tally) } else { Err(StoreError::undecidable(faults)) }
}

/// The post of a membership, which stands in its `cell` too. A membership that says it nowhere is nobody's.
fn post_of(document: &Document) -> Option<&str> {
    let in_cell = || text_of(document, "cell").ok()?.split_once(':').map(|(_, post)| post);
    text_of(document, "post").ok().or_else(in_cell)
}

/// One collection, or all collections of that name anywhere below.
pub(super) fn collection(collection_id: String, all_descendants: bool) -> Vec<CollectionSelector> {
    vec![CollectionSelector { collection_id, all_descendants }]
}

/// A field by its path.
pub(super) fn by(path: &str) -> FieldReference {
    FieldReference { field_path: path.to_owned() }
}

/// The document's name as a field.
pub(super) fn by_name() -> FieldReference {
    by("__name__")
}

/// In the order of a field.
pub(super) fn ascending(field: FieldReference) -> Order {
    Order { field: Some(field), direction: Direction::Ascending as i32 }
}

/// A document's name as a value.
pub(super) fn reference(name: String) -> Value {
    value(ValueType::ReferenceValue(name))
}

fn is(name: &str, op: Operator, to: Value) -> Filter {
    Filter {
        filter_type: Some(FilterType::FieldFilter(FieldFilter {
            field: Some(by(name)),
            op: op as i32,
            value: Some(to),
        })),
    }
}

fn is_liked() -> Filter {
    is("liked", Operator::Equal, value(ValueType::BooleanValue(true)))
}

fn both(filters: [Filter; 2]) -> Filter {
    let both = CompositeFilter { op: Composite::And as i32, filters: filters.into() };
    Filter { filter_type: Some(FilterType::CompositeFilter(both)) }
}

/// An answer that breaks the service's own contract. Asking again may help, and nothing was written.
pub(super) fn odd(what: &str) -> StoreError {
    StoreError::new(ErrorClass::Unknown, what)
}
